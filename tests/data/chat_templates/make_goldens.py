"""Writes goldens.json: what Hugging Face transformers makes of conversations.json.

"ids": token ids with the checkpoint's own chat template and tokenizer, for the checkpoints under examples/. "texts": the
text that the templates of this folder render, in the manner of their families. Null: the template refuses the
conversation. Needs transformers and jinja2; nothing is downloaded.
"""

import json
import pathlib

from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
CHECKPOINTS = ["gemma4-tiny-speech", "gemma3-tiny-shapes", "llava-tiny-shapes"]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def load(folder, template=None, tokens=None):
    config = tokens or json.loads((folder / "tokenizer_config.json").read_text())
    names = {key: config[key] for key in ("bos_token", "eos_token", "unk_token", "pad_token") if key in config}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **names)
    tokenizer.chat_template = template or config["chat_template"]
    return tokenizer


def rendered(tokenizer, messages, parts):
    content = (lambda text: [{"type": "text", "text": text}]) if parts else (lambda text: text)
    try:
        return tokenizer.apply_chat_template([{"role": role, "content": content(text)} for role, text in messages],
                                             tokenize=False, add_generation_prompt=True)
    except Exception:
        return None


def main():
    conversations = json.loads((HERE / "conversations.json").read_text())
    examples = HERE / "../../../examples"
    goldens = {"ids": {}, "texts": {}}
    for name in CHECKPOINTS:
        tokenizer = load(examples / name)
        ids = goldens["ids"][name] = {}
        for one in conversations:
            text = rendered(tokenizer, one["messages"], name.startswith("llava"))
            # A template without the beginning-of-text token leaves it to the tokenizer.
            special = not text.startswith(tokenizer.bos_token)
            ids[one["name"]] = tokenizer(text, add_special_tokens=special)["input_ids"]
            assert ids[one["name"]].count(tokenizer.bos_token_id) == 1, (name, one["name"])
    for path in sorted(HERE.glob("*.jinja")):
        tokenizer = load(examples / CHECKPOINTS[0], path.read_text(), TOKENS)
        goldens["texts"][path.stem] = {one["name"]: rendered(tokenizer, one["messages"], False)
                                       for one in conversations}
    lines = json.dumps(goldens, ensure_ascii=False, indent=1)
    (HERE / "goldens.json").write_text(lines + "\n")


main()
