"""A compiled library used from Python through tvm_ffi alone: no Dovetail code in the process but the library.

Usage: python library_test.py DOVETAIL EXAMPLE
  DOVETAIL  the dovetail executable
  EXAMPLE   the folder examples/gemma4-tiny-speech
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import tvm_ffi

DOVETAIL, EXAMPLE = sys.argv[1], pathlib.Path(sys.argv[2])


def shape(*values):
    return tvm_ffi.Shape(values)


def tensor(array):
    return tvm_ffi.from_dlpack(array)


def read_parameters(package, metadata):
    """The parameters in the order of the metadata, as numpy arrays."""
    cache = json.loads((package / "tensor-cache.json").read_text())
    stored = {}
    for shard in cache["records"]:
        data = (package / shard["dataPath"]).read_bytes()
        for record in shard["records"]:
            begin = record["byteOffset"]
            values = np.frombuffer(data[begin : begin + record["nbytes"]], dtype=record["dtype"])
            stored[record["name"]] = values.reshape(record["shape"])
    return [tensor(stored[parameter["name"]].copy()) for parameter in metadata["params"]]


class LibraryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.package = pathlib.Path(cls.folder.name) / "package"
        subprocess.run(
            [DOVETAIL, "convert", EXAMPLE, "-o", cls.package, "--quantization", "q4f16_1", "--rounding", "mlc"], check=True, capture_output=True
        )
        subprocess.run([DOVETAIL, "compile", cls.package, "-o", cls.package / "model.so"], check=True, capture_output=True)
        cls.library = tvm_ffi.load_module(str(cls.package / "model.so"))
        cls.metadata = json.loads(cls.library["_metadata"]())
        cls.params = read_parameters(cls.package, cls.metadata)
        cls.library["set_precision"]("exact")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def new_cache(self, sequences=1):
        cache = self.library["create_tir_paged_kv_cache"](shape(sequences), shape(1024), shape(256), shape(16), shape(0))
        return cache

    def embed(self, ids):
        return np.from_dlpack(self.library["embed"](tensor(np.array(ids, np.int32)), self.params))

    def prefill(self, cache, ids, embeddings, modality, sequence=0):
        self.library["kv_state_begin_forward"](cache, shape(sequence), shape(len(ids)))
        logits, _ = self.library["prefill_tokens"](
            tensor(embeddings[None]),
            tensor(np.array([ids], np.int32)),
            tensor(np.array([modality], np.int32)),
            cache,
            self.params,
        )
        self.library["kv_state_end_forward"](cache)
        return np.from_dlpack(logits).copy()

    def decode(self, cache, token, sequence=0):
        self.library["kv_state_begin_forward"](cache, shape(sequence), shape(1))
        logits, _ = self.library["decode_tokens"](tensor(np.array([[token]], np.int32)), cache, self.params)
        self.library["kv_state_end_forward"](cache)
        return np.from_dlpack(logits).copy()

    def test_metadata_holds_the_contract(self):
        artifact = self.metadata["artifact"]
        manifest = json.loads((self.package / "mlc-model-manifest.json").read_text())
        self.assertEqual(artifact["interface_id"], manifest["interface_id"])
        self.assertEqual(artifact["parameter_schema_id"], manifest["weights"]["parameter_schema_id"])
        program = artifact["programs"]["generation"]
        for function in [*program["exports"].values(), *program["adapters"].values()]:
            self.assertTrue(self.library.implements_function(function), function)

    def test_text_logits_agree_with_the_reference(self):
        cases = json.loads((EXAMPLE / "reference" / "cases.json").read_text())["cases"]
        logits = np.load(EXAMPLE / "reference" / "logits.npz")
        for case in (case for case in cases if "audio" not in case):
            ids = case["prompt_token_ids"]
            reference = logits[case["q4f16_1"]["logits"]]
            cache = self.new_cache()
            self.library["kv_state_add_sequence"](cache, 0)
            rows = [self.prefill(cache, ids, self.embed(ids), [0] * len(ids))[0, 0]]
            rows += [self.decode(cache, token)[0, 0] for token in case["q4f16_1"]["reply_token_ids"]]
            np.testing.assert_allclose(np.stack(rows), reference, atol=2e-2, rtol=0)

    def test_audio_logits_agree_with_the_reference(self):
        case = json.loads((EXAMPLE / "reference" / "cases.json").read_text())["cases"][0]
        reference = np.load(EXAMPLE / "reference" / "logits.npz")[case["q4f16_1"]["logits"]]
        wav = (EXAMPLE / case["audio"]).read_bytes()
        samples = np.frombuffer(wav[wav.index(b"data") + 8 :], np.int16).astype(np.float32) / 32768
        rows = np.from_dlpack(self.library["audio_embed"](tensor(samples), self.params))
        self.assertEqual(rows.shape, (self.library["audio_embed_length"](len(samples)), self.embed([0]).shape[1]))
        ids = case["prompt_token_ids"]
        modality = [int(token == 7) for token in ids]
        embeddings = self.embed(ids).copy()
        embeddings[np.array(modality) == 1] = rows
        cache = self.new_cache()
        self.library["kv_state_add_sequence"](cache, 0)
        logits = self.prefill(cache, ids, embeddings, modality)
        np.testing.assert_allclose(logits[0, 0], reference[0], atol=2e-2, rtol=0)

    def test_a_batch_decodes_like_its_sequences(self):
        cache = self.new_cache(2)
        single = []
        for sequence, ids in enumerate([[2, 4, 300], [2, 5, 301, 302]]):
            self.library["kv_state_add_sequence"](cache, sequence)
            self.prefill(cache, ids, self.embed(ids), [0] * len(ids), sequence)
            single.append(self.decode(cache, 310 + sequence, sequence)[0, 0])
            self.library["kv_state_popn"](cache, sequence, 1)
        self.library["kv_state_begin_forward"](cache, shape(0, 1), shape(1, 1))
        logits, _ = self.library["decode_tokens"](tensor(np.array([[310], [311]], np.int32)), cache, self.params)
        self.library["kv_state_end_forward"](cache)
        np.testing.assert_allclose(np.from_dlpack(logits)[:, 0], np.stack(single), atol=1e-5, rtol=0)
        self.assertEqual(self.library["attention_kv_cache_get_total_sequence_length"](cache), 9)

    def test_logits_of_every_position(self):
        ids = [2, 4, 300, 301, 17, 302]
        cache = self.new_cache()
        self.library["kv_state_add_sequence"](cache, 0)
        one_by_one = [self.decode(cache, token)[0, 0] for token in ids]
        self.library["kv_state_clear"](cache)
        self.library["kv_state_add_sequence"](cache, 0)
        self.library["kv_state_begin_forward"](cache, shape(0), shape(len(ids)))
        logits, _ = self.library["prefill_tokens_all"](
            tensor(self.embed(ids)[None]),
            tensor(np.array([ids], np.int32)),
            tensor(np.zeros((1, len(ids)), np.int32)),
            cache,
            self.params,
        )
        self.library["kv_state_end_forward"](cache)
        np.testing.assert_allclose(np.from_dlpack(logits)[0], np.stack(one_by_one), atol=1e-4, rtol=0)

    def test_parameters_that_were_copied_are_named_once(self):
        copied, again = [], []
        params = tvm_ffi.convert(self.params)
        self.library["bind_parameters"](params, copied.append)
        self.library["bind_parameters"](params, again.append)
        self.assertEqual(len(copied), len(set(copied)))
        self.assertGreater(len(copied), len(params) // 2)
        self.assertTrue(all(0 <= position < len(params) for position in copied))
        self.assertEqual(again, [], "the same array is bound already")

    def test_products_are_counted(self):
        self.embed([1, 2])
        before = list(self.library["products_done"]())
        cache = self.new_cache()
        self.library["kv_state_add_sequence"](cache, 0)
        self.prefill(cache, [2, 4], self.embed([2, 4]), [0, 0])
        after = list(self.library["products_done"]())
        self.assertEqual(len(after), 4)
        self.assertGreater(sum(after[0::2]), sum(before[0::2]))
        self.assertGreater(sum(after[1::2]), sum(before[1::2]))

    def test_wrong_arguments_are_python_exceptions(self):
        library, params = self.library, self.params
        cache = self.new_cache()
        library["kv_state_add_sequence"](cache, 0)
        ids = tensor(np.array([1], np.int32))
        for call in (
            lambda: library["embed"](tensor(np.array([512], np.int32)), params),
            lambda: library["embed"](tensor(np.array([-1], np.int32)), params),
            lambda: library["embed"](tensor(np.array([1], np.int64)), params),
            lambda: library["embed"](tensor(np.array([[1]], np.int32)), params),
            lambda: library["embed"](ids, params[:-1]),
            lambda: library["embed"](ids, params[::-1]),
            lambda: library["decode_tokens"](tensor(np.array([[1]], np.int32)), cache, params),  # no begin_forward
            lambda: library["kv_state_begin_forward"](cache, shape(5), shape(1)),
            lambda: library["kv_state_begin_forward"](cache, shape(0), shape(300)),
            lambda: library["audio_embed"](tensor(np.zeros(160, np.float32)), params),
            lambda: library["audio_embed"](tensor(np.zeros(480001, np.float32)), params),
            lambda: library["audio_embed_length"](-1),
            lambda: library["set_precision"]("half"),
            lambda: library["set_num_threads"](-1),
            lambda: library["create_tir_paged_kv_cache"](shape(0), shape(64), shape(64), shape(16), shape(0)),
            lambda: library["create_tir_paged_kv_cache"](shape(1, 2), shape(64), shape(64), shape(16), shape(0)),
            lambda: library["create_tir_paged_kv_cache"](shape(1), shape(64), shape(64), shape(16), shape(1)),
        ):
            with self.assertRaises(ValueError):
                call()
        for call in (lambda: library["embed"](ids), lambda: library["embed"](ids, params, 3), lambda: library["kv_state_clear"](ids)):
            with self.assertRaises(TypeError):
                call()

    def test_non_finite_samples_give_non_finite_rows(self):
        rows = np.from_dlpack(self.library["audio_embed"](tensor(np.full(4000, np.nan, np.float32)), self.params))
        self.assertTrue(np.isnan(rows).any())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
