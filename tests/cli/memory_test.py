"""The largest resident size of `dovetail chat` is that of the parameters and little more: a library copies its weights,
and as it does so the mapped pages that it has copied go."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# About 100 million weights, 200 MB as float16.
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
          "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 512,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "bos_token_id": 2,
          "eos_token_id": 1}
# Measured: 45 MB for the program, the largest parameter, the KV cache and activations. A second copy of the weights
# would be 200 MB more.
ALLOWANCE = 96 << 20


def largest_resident_bytes(command):
    """Of this child alone: the compiler, another child, is larger."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command}: exit code {process.returncode}"
    return usage.ru_maxrss * 1024


def main():
    dovetail, make_checkpoint = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="dovetail-memory-") as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        for command in ([make_checkpoint, folder / "config.json", folder / "hf"],
                        [dovetail, "convert", folder / "hf", "--quantization", "q0f16", "-o", folder / "package"],
                        [dovetail, "compile", folder / "package"]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
        shutil.rmtree(folder / "hf")
        parameters = sum(file.stat().st_size for file in (folder / "package").glob("params_shard_*.bin"))
        assert parameters > 1.5 * ALLOWANCE, f"{parameters} bytes of parameters are too few to tell"
        resident = largest_resident_bytes([dovetail, "chat", folder / "package", "--message", "hi", "--max-tokens", "1",
                                           "--temperature", "0", "--threads", "2"])
    print(f"{parameters / 1e6:.0f} MB of parameters, {resident / 1e6:.0f} MB resident at most")
    assert resident <= parameters + ALLOWANCE, f"{resident} bytes are more than {parameters} + {ALLOWANCE}"


if __name__ == "__main__":
    main()
