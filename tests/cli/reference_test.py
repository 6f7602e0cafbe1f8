"""Compares `dovetail logits` on every reference case with what the original implementation computed.

Prompt ids must be equal. q0f32 must agree within 2e-3; q4f16_1 with float32 activations within 2e-2, with the same
replies. With int8 activations at most one reply in twenty may differ and the mean Kullback-Leibler divergence over the
positions must not exceed 0.01.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def log_softmax(logits):
    shifted = logits.astype(numpy.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(axis=-1, keepdims=True))


def divergence(reference, actual):
    p, q = log_softmax(reference), log_softmax(actual)
    return (numpy.exp(p) * (p - q)).sum(axis=-1)


def compare(dovetail, example, package, cases, references, column, options, work):
    """Returns the largest difference, the number of differing replies and the mean divergence."""
    largest, differing, divergences = 0.0, 0, []
    output = work / "out.npz"
    for case in cases:
        reply = case[column]["reply_token_ids"]
        command = [dovetail, "logits", str(package), "--message", case["message"], "-o", str(output), *options]
        if case.get("audio"):
            command += ["--audio", str(example / case["audio"])]
        if reply:
            command += ["--reply-ids", ",".join(map(str, reply))]
        run(*command)
        with numpy.load(output) as arrays:
            ids, logits = arrays["prompt_token_ids"], arrays["logits"]
        assert ids.tolist() == case["prompt_token_ids"], f"{case['message']}: prompt ids differ"
        reference = references[case[column]["logits"]]
        assert logits.shape == reference.shape, f"{logits.shape} instead of {reference.shape}"
        assert logits.dtype == numpy.float32
        largest = max(largest, float(numpy.abs(logits - reference).max()))
        differing += logits[:-1].argmax(axis=-1).tolist() != reply
        divergences.extend(divergence(reference, logits))
    return largest, differing, float(numpy.mean(divergences))


def main():
    dovetail, example = sys.argv[1], pathlib.Path(sys.argv[2])
    cases = json.loads((example / "reference/cases.json").read_text())["cases"]
    assert len(cases) >= 10
    with tempfile.TemporaryDirectory() as folder, numpy.load(example / "reference/logits.npz") as references:
        work = pathlib.Path(folder)
        for quantization in ("q0f32", "q4f16_1"):
            run(dovetail, "convert", str(example), "--quantization", quantization, "-o", str(work / quantization))
            run(dovetail, "compile", str(work / quantization))
        arguments = (dovetail, example)
        largest, differing, _ = compare(*arguments, work / "q0f32", cases, references, "f32", [], work)
        print(f"q0f32: largest difference {largest:.2e}, {differing} of {len(cases)} replies differ")
        assert largest <= 2e-3 and differing == 0
        q4 = (*arguments, work / "q4f16_1", cases, references, "q4f16_1")
        largest, differing, _ = compare(*q4, ["--exact"], work)
        print(f"q4f16_1 exact: largest difference {largest:.2e}, {differing} of {len(cases)} replies differ")
        assert largest <= 2e-2 and differing == 0
        largest, differing, mean = compare(*q4, [], work)
        print(f"q4f16_1 int8: largest difference {largest:.2e}, {differing} of {len(cases)} replies differ, "
              f"mean divergence {mean:.5f}")
        assert differing * 20 <= len(cases) and mean <= 0.01


if __name__ == "__main__":
    main()
