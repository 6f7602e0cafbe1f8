"""Measures what quantization costs on real models, and prints the rows of the table in docs/quality.md.

    bench/quality.py DOVETAIL MODEL.gguf TEXT [--quantizations q0f16,q8f16_1,…] [--llama-cpp] [--work FOLDER]

Converts and compiles the model in every quantization, measures perplexity and the divergence from q0f16 on the text.
--llama-cpp adds llama.cpp's Q8_0 and Q4_0 of the same file, made and run by PyPI's llama-cpp-python on the same tokens
in the same windows.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

CONTEXT, STRIDE = 512, 256
REFERENCE = "q0f16"


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stderr}")
    return done.stdout


def make_package(dovetail, model, quantization, work):
    package = work / quantization
    if not (package / "lib").is_dir():
        run(dovetail, "convert", model, "-o", package, "--quantization", quantization)
        run(dovetail, "compile", package)
    return package


def row(name, size, perplexity, kl="", same=""):
    print(f"| {name} | {size / 1e6:.0f} | {perplexity:.3f} | {kl} | {same} |", flush=True)


def measure(arguments, work):
    reference = make_package(arguments.dovetail, arguments.model, REFERENCE, work)
    for quantization in arguments.quantizations.split(","):
        package = make_package(arguments.dovetail, arguments.model, quantization, work)
        size = sum(file.stat().st_size for file in package.glob("params_shard_*.bin"))
        for mode in ([], ["--exact"]):
            result = json.loads(run(arguments.dovetail, "eval", "kl", package, arguments.text, "--reference", reference,
                                    "--context", CONTEXT, "--stride", STRIDE, "--json", *mode))
            row(quantization + (", exact" if mode else ""), size, result["model"]["perplexity"],
                f"{result['kl']['mean']:.5f}", f"{100 * result['same_top']:.1f} %")
    return reference


def windows(count, width):
    """As src/engine/evaluate.cc: begin, end and first scored token."""
    begin, scored = 0, 1
    while scored < count:
        end = min(begin + width, count)
        yield begin, end, scored
        begin, scored = begin + STRIDE, end


def llama_cpp_perplexity(file, text, prefix):
    import llama_cpp
    import numpy as np

    model = llama_cpp.Llama(str(file), n_ctx=CONTEXT, n_batch=CONTEXT, logits_all=True, verbose=False)
    ids = model.tokenize(text, add_bos=False, special=False)
    total, scored_tokens = 0.0, 0
    for begin, end, first in windows(len(ids), CONTEXT - len(prefix)):
        window = prefix + ids[begin:end]
        model.reset()
        model.eval(window)
        logits = np.asarray(model.scores[: len(window)], np.float64)
        for target in range(first, end):
            at = logits[len(prefix) + target - begin - 1]
            top = at.max()
            total += top + math.log(np.exp(at - top).sum()) - at[ids[target]]
            scored_tokens += 1
    return math.exp(total / scored_tokens), scored_tokens


def measure_llama_cpp(arguments, package, work):
    import llama_cpp

    config = json.loads((package / "mlc-chat-config.json").read_text())
    prefix = config["conv_template"].get("system_prefix_token_ids") or []
    text = arguments.text.read_bytes()
    for name, kind in (("Q8_0", llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0), ("Q4_0", llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0)):
        file = work / f"{name}.gguf"
        if not file.exists():
            parameters = llama_cpp.llama_model_quantize_default_params()
            parameters.ftype, parameters.allow_requantize = kind, True
            if llama_cpp.llama_model_quantize(str(arguments.model).encode(), str(file).encode(), parameters) != 0:
                raise SystemExit(f"llama.cpp can't make {name}")
        perplexity, _ = llama_cpp_perplexity(file, text, prefix)
        row(f"llama.cpp {name}", file.stat().st_size, perplexity)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dovetail", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--quantizations", default="q0f32,q0f16,q8f16_1,q4f32_1,q4f16_1,q4f16_0,q4f16_2,q3f16_1,q3f16_0")
    parser.add_argument("--llama-cpp", action="store_true")
    parser.add_argument("--work", type=pathlib.Path, help="keeps what is made here")
    arguments = parser.parse_args()
    print("| quantization | MB | perplexity | mean KL | same top |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or pathlib.Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        package = measure(arguments, work)
        if arguments.llama_cpp:
            measure_llama_cpp(arguments, package, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
