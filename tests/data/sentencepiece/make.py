"""Trains the models of this folder and writes expected.json: ids by SentencePiece itself.

Needs PyPI's sentencepiece (0.2.3 made the files). The texts to train on are the repository's documents, so that
training again gives other models; expected.json always belongs to the models beside it.
"""

import io
import json
import pathlib

import sentencepiece

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
MORE = ["Grüße aus München, schöne Straßen", "naïve café déjà vu", "Привет мир", "こんにちは世界 東京", "set a timer for nine minutes"]

# Half of these are nothing that the models were trained on.
TEXTS = [
    "", " ", "  ", "hello the other way", " hello", "hello ", "  two spaces\n\nand lines\t.", "a      b   c  d e",
    "The package is whole.", "convert a folder into a package", "ä€ 😀 x", "日本語テキスト", "Привет, мир!",
    "naïve café déjà vu", "e\u0301 combining", "\u200bzero width", "12 345 6789 3.14159", "x" * 40, "ab" * 30,
    "tabs\tand\r\nlines\n", "\ufb01 ligature ﬁ", "ＦＵＬＬ width", "▁ marks ▁▁", "<tool>call</tool>", "before <tool> after",
    "<tool>  <tool>", "ab!ab!", "weights, weights; weights: (weights)", "https://example.com/a?b=c&d=%20", "\u0000zero",
    "\u3000ideographic\u00a0spaces", "MixedCASE words AND more", "quantization q4f16_1", "{\"json\": [1, 2, 3]}",
    "def f(x):\n    return x  # comment\n", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "👩‍👩‍👧‍👦 family", "ß ẞ İ ı", "\u202eright to left", "end",
]


def train(name, texts, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=out, hard_vocab_limit=False, minloglevel=2, num_threads=1, **options)
    (HERE / f"{name}.model").write_bytes(out.getvalue())


def main():
    texts = []
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        texts += [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    texts += MORE * 4
    # As Llama's.
    train("bpe", texts, model_type="bpe", vocab_size=700, byte_fallback=True, normalization_rule_name="identity",
          remove_extra_whitespaces=False, character_coverage=0.99)
    # As Gemma's: no space before a text, runs of spaces and markup as pieces of their own.
    train("spaces", texts, model_type="bpe", vocab_size=600, byte_fallback=True, normalization_rule_name="identity",
          remove_extra_whitespaces=False, add_dummy_prefix=False, character_coverage=0.99, pad_id=0, eos_id=1, bos_id=2,
          unk_id=3, user_defined_symbols=["▁" * count for count in range(2, 8)] + ["\n\n", "<tool>"])
    # As T5's and XLM-R's: no bytes, characters that become others, spaces that are joined.
    rules = HERE / "rules.tsv"
    rules.write_text("".join(f"{ord(a):X}\t{' '.join(f'{ord(c):X}' for c in b)}\n" for a, b in
                             [("\t", " "), ("\n", " "), ("\r", " "), ("\u3000", " "), ("\u00a0", " "), ("ﬁ", "fi"),
                              ("\u200b", ""), *((chr(0xFF21 + i), chr(65 + i)) for i in range(26))]), encoding="utf-8")
    train("unigram", texts, model_type="unigram", vocab_size=500, normalization_rule_tsv=str(rules), character_coverage=0.995,
          user_defined_symbols=["<tool>", "ab!"])
    rules.unlink()
    train("unigram_bytes", texts, model_type="unigram", vocab_size=600, byte_fallback=True,
          normalization_rule_name="identity", character_coverage=0.98)
    expected = {"texts": TEXTS, "ids": {}}
    for name in ["bpe", "spaces", "unigram", "unigram_bytes"]:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(HERE / f"{name}.model"))
        expected["ids"][name] = [processor.encode(text) for text in TEXTS]
    with (HERE / "expected.json").open("w", encoding="utf-8") as file:
        json.dump(expected, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
