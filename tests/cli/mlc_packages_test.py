"""Packages made by MLC's own tools, which have no manifest: every command takes them, `dovetail compile` and
`dovetail logits` agree with reference logits. With a manifest beside MLC's configuration, the encoder of pictures is
compiled too.

logits.json holds what MLC's library computed: q0f16 and q4f16_1 in float16, q4f32_1 in float32 (its package holds the
scales rounded to bfloat16). text_logits.json holds what make_text_logits.py computed in float64 from the package's
files. picture_logits.json holds what MLC's library computed for a picture.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
import tvm_ffi

# folder, document of reference logits, tolerance
PACKAGES = [
    ("llama_tiny/q0f16", "logits.json", 2e-2),
    ("llama_tiny/q4f16_1", "logits.json", 2e-2),
    ("llama_tiny/q4f32_1", "logits.json", 1e-4),
    ("gemma3_tiny/q0f32", "text_logits.json", 1e-4),
    ("llava_tiny/q0f32", "text_logits.json", 1e-4),
    ("llava_tiny/q4f16_1", "text_logits.json", 1e-4),
]
# For slow builds: enough packages to run every path.
if "--few" in sys.argv:
    PACKAGES = [package for package in PACKAGES if package[0] in ("llama_tiny/q4f16_1", "llava_tiny/q0f32")]


class Tool:
    def __init__(self, path):
        self.path = path

    def run(self, *arguments, expected=0):
        result = subprocess.run([self.path, *map(str, arguments)], capture_output=True, text=True)
        if result.returncode != expected:
            sys.exit(f"{arguments}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout + result.stderr


def ids_text(ids):
    return ",".join(map(str, ids))


def compare(dovetail, package, reference, work):
    """The largest difference of all rows."""
    reply = [step["token"] for step in reference["decode"]]
    output = work / "out.npz"
    dovetail.run("logits", package, "--prompt-ids", ids_text(reference["prompt_ids"]), "--reply-ids", ids_text(reply),
                 "--exact", "-o", output)
    with numpy.load(output) as arrays:
        ids, logits = arrays["prompt_token_ids"], arrays["logits"]
    assert ids.tolist() == reference["prompt_ids"]
    expected = numpy.array([reference["prefill_logits"]] + [step["logits"] for step in reference["decode"]])
    assert logits.shape == expected.shape, f"{logits.shape} instead of {expected.shape}"
    return float(numpy.abs(logits - expected).max())


def check_commands(dovetail, package):
    """What has no manifest says so, and takes text only."""
    text = dovetail.run("inspect", package)
    assert "has no mlc-model-manifest.json and takes text only" in text, text
    library = next((package / "lib").glob("*.so"))
    text = dovetail.run("inspect", library)
    assert "none: for packages without mlc-model-manifest.json" in text, text
    text = dovetail.run("verify", package, "--deep")
    assert "fits" in text and "The package is whole." in text and "takes text only" in text, text
    bench = json.loads(dovetail.run("bench", package, "--json", "--prompt-tokens", 8, "--tokens", 4))
    assert bench["decode_tokens_per_second"] > 0
    recording = package / "x.wav"
    recording.write_bytes(b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0data\0\0\0\0")
    text = dovetail.run("chat", package, "--audio", recording, "--message", "x", expected=1)
    assert "does not take audio" in text and "takes text only" in text, text
    text = dovetail.run("bench", package, "--image", "--prompt-tokens", 8, "--tokens", 1, expected=1)
    assert "does not take pictures" in text and "takes text only" in text, text


def read_parameters(package, metadata):
    """The parameters in the order of the library's metadata; those that MLC stores as bfloat16 are widened."""
    stored = {}
    for shard in json.loads((package / "tensor-cache.json").read_text())["records"]:
        data = (package / shard["dataPath"]).read_bytes()
        for record in shard["records"]:
            values = data[record["byteOffset"] : record["byteOffset"] + record["nbytes"]]
            assert record["dtype"] == "float32"
            if record["format"] == "f32-to-bf16":
                values = numpy.frombuffer(values, numpy.uint16).astype(numpy.uint32) << 16
            stored[record["name"]] = numpy.frombuffer(values, numpy.float32).reshape(record["shape"])
    return [tvm_ffi.from_dlpack(stored[parameter["name"]].copy()) for parameter in metadata["params"]]


def check_picture(dovetail, data, work):
    """A package of MLC's with a manifest: adapter and logits are those of MLC's library."""
    package = work / "llava_tiny-manifest"
    shutil.copytree(data / "llava_tiny/q0f32", package)
    plan = json.loads(dovetail.run("plan", data / "llava_tiny/hf/config.json", "--quantization", "q0f32", "--json"))
    (package / "mlc-model-manifest.json").write_text(json.dumps(plan["manifest"]))
    dovetail.run("compile", package, "--cpu", "x86-64-v3")
    text = dovetail.run("verify", package, "--deep")
    assert "fits" in text and "The package is whole." in text and "takes text only" not in text, text

    library = tvm_ffi.load_module(str(next((package / "lib").glob("*.so"))))
    params = read_parameters(package, json.loads(library["_metadata"]()))
    reference = json.loads((package / "picture_logits.json").read_text())
    ids = numpy.array(reference["prompt_ids"], numpy.int32)
    pixels = numpy.fromfile(package / "picture_1x56x56x3_u8.bin", numpy.uint8).reshape(1, 56, 56, 3)
    rows = numpy.from_dlpack(library["image_embed"](tvm_ffi.from_dlpack(pixels), params)).copy()
    embeddings = numpy.from_dlpack(library["embed"](tvm_ffi.from_dlpack(ids), params)).copy()
    embeddings[ids == 310] = rows  # image_token_index of its configuration
    cache = library["create_tir_paged_kv_cache"](*(tvm_ffi.Shape((size,)) for size in (1, 256, 256, 16, 0)))
    library["kv_state_add_sequence"](cache, 0)
    library["kv_state_begin_forward"](cache, tvm_ffi.Shape((0,)), tvm_ffi.Shape((len(ids),)))
    logits, _ = library["prefill"](tvm_ffi.from_dlpack(embeddings[None]), cache, params)
    for name, actual, expected in (("rows", rows, reference["image_embed"]),
                                   ("logits", numpy.from_dlpack(logits), reference["prefill_logits"])):
        difference = float(numpy.abs(actual.ravel() - numpy.array(expected)).max())
        print(f"{package.name}, {name}: within {difference:.2e}")
        assert difference <= 1e-4, f"{name}: {difference}"


def main():
    dovetail, data = Tool(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for name, document, tolerance in PACKAGES:
            package = work / name.replace("/", "-")
            shutil.copytree(data / name, package)
            dovetail.run("compile", package, "--cpu", "x86-64-v3")
            difference = compare(dovetail, package, json.loads((package / document).read_text()), work)
            print(f"{name}: within {difference:.2e}")
            assert difference <= tolerance, f"{name}: {difference} exceeds {tolerance}"
            check_commands(dovetail, package)
        # Python has no sanitizer runtime, which the library of a slow build needs before all others.
        if "--few" not in sys.argv:
            check_picture(dovetail, data, work)
        # The file's older name.
        package = work / "llama_tiny-q4f16_1"
        (package / "tensor-cache.json").rename(package / "ndarray-cache.json")
        reference = json.loads((package / "logits.json").read_text())
        assert compare(dovetail, package, reference, work) <= 2e-2
        dovetail.run("compile", package, "-o", work / "again.so", "--cpu", "x86-64-v3")
        assert "The package is whole." in dovetail.run("verify", package, "--deep")
        # Its template begins with a token beyond its small vocabulary.
        text = dovetail.run("chat", package, "--message", "x", expected=1)
        assert "128000" in text, text
        text = dovetail.run("verify", package)
        assert "has no token 128000" in text, text
        # This one can hold a conversation.
        text = dovetail.run("chat", work / "llava_tiny-q0f32", "--message", "x", "--max-tokens", "3", "--json")
        assert json.loads(text)["usage"]["completion_tokens"] <= 3


main()
