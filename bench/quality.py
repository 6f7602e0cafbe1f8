"""Measures what quantization costs on real models, and prints the tables of docs/quality.md.

    bench/quality.py DOVETAIL MODEL.gguf TEXT [--quantizations q4f16_1,q4f16_1:mlc,…] [--llama-cpp] [--work FOLDER]

Converts and compiles the model in every quantization (":mlc": with --rounding mlc). Measures the perplexity of the text
with float32 and with int8 activations, and the divergence from q0f16 with both. --llama-cpp adds llama.cpp's F16, Q8_0
and Q4_0 of the same file, made and run by PyPI's llama-cpp-python on the same tokens in the same windows; their divergence
is that from llama.cpp's F16.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

CONTEXT, STRIDE = 512, 448
REFERENCE = "q0f16"
QUANTIZATIONS = ("q0bf16,q8f16_1,q8f16_1:mlc,q4f16_1,q4f16_1:mlc,q4f16_0,q4f16_2,q4f32_1,q4bf16_1,q4bf16_0,"
                 "q3f16_1,q3f16_1:mlc,q3f16_0")


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stderr}")
    return done.stdout


class Measurement:
    def __init__(self, arguments, work):
        self.dovetail, self.model, self.threads = arguments.dovetail, arguments.model, arguments.threads
        self.cpu = ["--cpu", arguments.cpu] if arguments.cpu else []
        self.work = work
        self.text = work / "text.txt"
        self.text.write_text(arguments.text.read_bytes()[:arguments.bytes].decode(errors="ignore"))

    def package(self, name):
        quantization, _, rounding = name.partition(":")
        package = self.work / name.replace(":", "-")
        if not package.is_dir():
            run(self.dovetail, "convert", self.model, "-o", package, "--quantization", quantization,
                "--rounding", rounding or "search")
        return package

    def library(self, name):
        package = self.package(name.partition(":")[0])
        if not (package / "lib").is_dir():
            run(self.dovetail, "compile", package, *self.cpu)
        return next((package / "lib").glob("*.so"))

    def evaluate(self, what, name, *options):
        return json.loads(run(self.dovetail, "eval", what, self.package(name), self.text,
                              "--library", self.library(name), "--context", CONTEXT, "--stride", STRIDE,
                              "--threads", self.threads, "--json", *options))

    def divergence(self, name, *options):
        return self.evaluate("kl", name, "--reference", self.package(REFERENCE),
                             "--reference-library", self.library(REFERENCE), *options)

    def size(self, name):
        return sum(file.stat().st_size for file in self.package(name).glob("params_shard_*.bin"))

    def measure(self, names):
        print("| | MB | bits | perplexity, float32 activations | from q0f16 | with int8 | from float32 | KL | same top |\n"
              "|---|---|---|---|---|---|---|---|---|", flush=True)
        weights = self.size(REFERENCE) / 2
        for name in names:
            exact = self.divergence(name, "--exact")
            before, after = (exact[key]["perplexity"] for key in ("reference", "model"))
            size = self.size(name)
            cells = [name.replace(":mlc", ", MLC's rounding"), f"{size / 1e6:.0f}", f"{8 * size / weights:.2f}",
                     f"{after:.2f}", f"{100 * (after / before - 1):+.2f} %"]
            # What is not quantized is computed with float32 activations either way.
            if name.startswith("q0"):
                cells += ["", ""]
            else:
                rounded = self.evaluate("perplexity", name)["perplexity"]
                cells += [f"{rounded:.2f}", f"{100 * (rounded / after - 1):+.2f} %"]
            cells += [f"{exact['kl']['mean']:.2g}", f"{100 * exact['same_top']:.1f} %"]
            print("| " + " | ".join(cells) + " |", flush=True)


def windows(count, width):
    """As src/engine/evaluate.cc: begin, end and first scored token."""
    begin, scored = 0, 1
    while scored < count:
        end = min(begin + width, count)
        yield begin, end, scored
        begin, scored = begin + STRIDE, end


class LlamaCpp:
    """llama.cpp's files of a model, each run over the text."""

    def __init__(self, measurement):
        import llama_cpp
        import tokenizers

        # Weights repacked for AMX ended in a segmentation fault (version 0.3.36, on a virtual machine).
        defaults = llama_cpp.llama_cpp.llama_model_default_params

        def without_repacking():
            parameters = defaults()
            parameters.use_extra_bufts = False
            return parameters

        llama_cpp.llama_cpp.llama_model_default_params = without_repacking
        self.library = llama_cpp
        self.measurement = measurement
        config = json.loads((measurement.package(REFERENCE) / "mlc-chat-config.json").read_text())
        self.tokenizer = tokenizers.Tokenizer.from_file(str(measurement.package(REFERENCE) / "tokenizer.json"))
        self.prefix = config["conv_template"].get("system_prefix_token_ids") or []
        self.active = config.get("active_vocab_size") or config["vocab_size"]

    def file(self, name):
        """All tensors in one type, the embedding table and the head too; the quantized ones are made from F16."""
        file = self.measurement.work / f"{name}.gguf"
        if not file.exists():
            parameters = self.library.llama_model_quantize_default_params()
            parameters.ftype = getattr(self.library, f"LLAMA_FTYPE_MOSTLY_{name}")
            parameters.allow_requantize = parameters.pure = True
            parameters.nthread = self.measurement.threads
            source = self.measurement.model if name == "F16" else self.file("F16")
            if self.library.llama_model_quantize(str(source).encode(), str(file).encode(), parameters) != 0:
                raise SystemExit(f"llama.cpp can't make {name}")
        return file

    def log_probabilities(self, name):
        """The scored token's id and the log probabilities of all tokens, for every scored token."""
        import numpy

        model = self.library.Llama(str(self.file(name)), n_ctx=CONTEXT, n_batch=CONTEXT, logits_all=True, verbose=False,
                                   n_threads=self.measurement.threads, n_threads_batch=self.measurement.threads)
        ids = model.tokenize(self.measurement.text.read_bytes(), add_bos=False, special=False)
        assert ids == self.tokenizer.encode(self.measurement.text.read_text(), add_special_tokens=False).ids
        for begin, end, first in windows(len(ids), CONTEXT - len(self.prefix)):
            window = self.prefix + ids[begin:end]
            model.reset()
            model.eval(window)
            for target in range(first, end):
                row = numpy.array(model.scores[len(self.prefix) + target - begin - 1][:self.active], numpy.float64)
                row -= row.max()
                yield ids[target], row - numpy.log(numpy.exp(row).sum())

    def measure(self):
        import numpy

        print("\n| | MB | perplexity | from F16 | KL from F16 | same top |\n|---|---|---|---|---|---|", flush=True)
        for name in ("F16", "Q8_0", "Q4_0"):
            loss, before, divergence, same, count = 0.0, 0.0, 0.0, 0, 0
            for (target, actual), (_, expected) in zip(self.log_probabilities(name), self.log_probabilities("F16")):
                loss -= actual[target]
                before -= expected[target]
                divergence += float(numpy.dot(numpy.exp(expected), expected - actual))
                same += int(actual.argmax() == expected.argmax())
                count += 1
            loss, before = math.exp(loss / count), math.exp(before / count)
            print(f"| llama.cpp {name} | {self.file(name).stat().st_size / 1e6:.0f} | {loss:.2f} | "
                  f"{100 * (loss / before - 1):+.2f} % | {divergence / count:.2g} | {100 * same / count:.1f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dovetail", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--quantizations", default=QUANTIZATIONS)
    parser.add_argument("--bytes", type=int, help="of the text, from its beginning; default: all")
    parser.add_argument("--cpu", help="level to compile for; default: as dovetail compile has it")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--llama-cpp", action="store_true")
    parser.add_argument("--work", type=pathlib.Path, help="keeps what is made here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or pathlib.Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        measurement = Measurement(arguments, work)
        if arguments.quantizations:
            measurement.measure(arguments.quantizations.split(","))
        if arguments.llama_cpp:
            LlamaCpp(measurement).measure()
    return 0


if __name__ == "__main__":
    sys.exit(main())
