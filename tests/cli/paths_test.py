"""Names that are not ASCII, from the checkpoint to the reply: every command reads and writes below such a folder."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

FOLDER = "模型 é 🙂"


def main():
    dovetail, example = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as temporary:
        top = pathlib.Path(temporary) / FOLDER
        top.mkdir()

        def run(*arguments, expected=0):
            done = subprocess.run([dovetail, *map(str, arguments)], capture_output=True, encoding="utf-8", cwd=temporary)
            assert done.returncode == expected, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
            return done.stdout + done.stderr

        checkpoint, package = top / "权重", f"{FOLDER}/包/пакет"
        shutil.copytree(example, checkpoint)
        # Also the names in an index, in the checkpoint and in the links of a cache.
        (checkpoint / "model.safetensors").rename(checkpoint / "poids é.safetensors")
        data = (checkpoint / "poids é.safetensors").read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        names = {name: "poids é.safetensors" for name in header if name != "__metadata__"}
        (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}), encoding="utf-8")
        inspected = json.loads(run("inspect", checkpoint, "--json"))
        assert "problems" not in inspected, inspected
        assert FOLDER in run("convert", checkpoint, "-o", package, "--quantization", "q4f16_1")
        assert FOLDER in run("compile", package, "--cpu", "x86-64-v3")
        assert "The package is whole." in run("verify", package, "--deep")
        assert json.loads(run("inspect", package, "--json"))["kind"] == "package"
        library = next((pathlib.Path(temporary) / package / "lib").glob("*.so"))
        library = library.rename(library.with_name("библиотека 🙂.so"))
        assert json.loads(run("inspect", library, "--json"))["kind"] == "library"
        recording = top / "голос é.wav"
        shutil.copy(pathlib.Path(example) / "audio" / "utterance03.wav", recording)
        reply = run("chat", package, "--library", library, "--audio", recording, "--message", "Transcribe the audio.",
                    "--temperature", "0")
        assert "set a timer for nine minutes" in reply, reply
        # Such a name in a message is written as it is, also where it is a file's own.
        assert f"{FOLDER}/nichts: there is no such package folder" in run("verify", f"{FOLDER}/nichts", expected=1)
        # Also a file that a document of the package names.
        folder, shard = pathlib.Path(temporary) / package, "Teil é 🙂.bin"
        (folder / "params_shard_0.bin").rename(folder / shard)
        (folder / "dovetail-hashes.json").unlink()
        cache = (folder / "tensor-cache.json").read_text(encoding="utf-8").replace("params_shard_0.bin", shard)
        (folder / "tensor-cache.json").write_text(cache, encoding="utf-8")
        assert "The package is whole." in run("verify", package, "--deep")
        (folder / shard).unlink()
        assert f"{shard}: file is missing" in run("verify", package, expected=1)


main()
