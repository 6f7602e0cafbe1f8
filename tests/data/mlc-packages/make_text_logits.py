"""Writes <package>/text_logits.json: logits of text prompts for packages whose own logits.json has none.

Reads the package's files alone and computes in float64 with plain loops over layers; the formulas are those of Hugging
Face's modeling_llama and modeling_gemma3. Usage: make_text_logits.py PACKAGE...
"""

import json
import pathlib
import sys

import numpy as np

PROMPT = [1, 259, 265, 261, 313, 17, 200, 41, 77, 300, 12, 90, 5]
REPLY = [41, 7]


def read_tensors(folder):
    out = {}
    for shard in json.loads((folder / "tensor-cache.json").read_text())["records"]:
        data = (folder / shard["dataPath"]).read_bytes()
        for record in shard["records"]:
            part = data[record["byteOffset"]:record["byteOffset"] + record["nbytes"]]
            if record["dtype"] == "float32" and record["format"] == "f32-to-bf16":
                values = (np.frombuffer(part, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(part, record["dtype"])
            out[record["name"]] = values.reshape(record["shape"])
    return out


class Weights:
    def __init__(self, folder):
        self.tensors = read_tensors(folder)

    def __call__(self, name, columns=None):
        if name + ".weight" in self.tensors:
            return self.tensors[name + ".weight"].astype(np.float64)
        words, scale = self.tensors[name + ".q_weight"], self.tensors[name + ".q_scale"].astype(np.float64)
        nibbles = (words[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
        values = (nibbles.reshape(words.shape[0], -1, 32).astype(np.float64) - 7) * scale[:, :, None]
        return values.reshape(words.shape[0], -1)[:, :columns]


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, theta):
    size = x.shape[-1]
    angles = np.arange(x.shape[0])[:, None] / theta ** (np.arange(0, size, 2) / size)
    cos, sin = (np.concatenate([f(angles)] * 2, -1)[:, None] for f in (np.cos, np.sin))
    return x * cos + np.concatenate([-x[..., size // 2:], x[..., :size // 2]], -1) * sin


def attention(q, k, v, scale, window):
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], axis=1) for a in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    distance = np.arange(len(q))[:, None] - np.arange(len(q))[None]
    scores[:, (distance < 0) | (distance >= window)] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(len(q), -1)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def llama(weights, config, ids):
    c = config["text_config"]
    hidden, inner, heads, size = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["head_dim"]
    kv, eps, root = c["num_key_value_heads"], c["rms_norm_eps"], "language_model."
    x = weights(root + "model.embed_tokens", hidden)[ids]
    for i in range(c["num_hidden_layers"]):
        name = f"{root}model.layers.{i}."
        a = norm(x, weights(name + "input_layernorm"), eps)
        qkv = (a @ weights(name + "self_attn.qkv_proj", hidden).T).reshape(len(ids), -1, size)
        q, k, v = rotate(qkv[:, :heads], 1e4), rotate(qkv[:, heads:heads + kv], 1e4), qkv[:, heads + kv:]
        x = x + attention(q, k, v, size**-0.5, 1 << 30) @ weights(name + "self_attn.o_proj", heads * size).T
        a = norm(x, weights(name + "post_attention_layernorm"), eps)
        both = a @ weights(name + "mlp.gate_up_proj", hidden).T
        x = x + (silu(both[:, :inner]) * both[:, inner:]) @ weights(name + "mlp.down_proj", inner).T
    return norm(x, weights(root + "model.norm"), eps) @ weights(root + "lm_head", hidden).T


def gemma3(weights, config, ids):
    c = config["text_config"]
    extra = c["kwargs"]
    hidden, inner, heads, size = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["head_dim"]
    kv, eps, root = c["num_key_value_heads"], c["rms_norm_eps"], "language_model.model."
    table = weights(root + "embed_tokens", hidden)
    x = table[ids] * hidden**0.5
    for i in range(c["num_hidden_layers"]):
        name = f"{root}layers.{i}."
        sliding = (i + 1) % extra["sliding_window_pattern"] != 0
        theta = extra["rope_local_base_freq"] if sliding else c["position_embedding_base"]
        a = norm(x, weights(name + "input_layernorm"), eps)
        q, k, v = ((a @ weights(f"{name}self_attn.{part}_proj", hidden).T).reshape(len(ids), n, size)
                   for part, n in (("q", heads), ("k", kv), ("v", kv)))
        q = rotate(norm(q, weights(name + "self_attn.q_norm"), eps), theta)
        k = rotate(norm(k, weights(name + "self_attn.k_norm"), eps), theta)
        window = extra["sliding_window"] if sliding else 1 << 30
        a = attention(q, k, v, c["query_pre_attn_scalar"]**-0.5, window)
        a = a @ weights(name + "self_attn.o_proj", heads * size).T
        x = x + norm(a, weights(name + "post_attention_layernorm"), eps)
        a = norm(x, weights(name + "pre_feedforward_layernorm"), eps)
        both = a @ weights(name + "mlp.gate_up_proj", hidden).T
        a = (gelu_tanh(both[:, :inner]) * both[:, inner:]) @ weights(name + "mlp.down_proj", inner).T
        x = x + norm(a, weights(name + "post_feedforward_layernorm"), eps)
    return norm(x, weights(root + "norm"), eps) @ table.T


def main():
    for folder in map(pathlib.Path, sys.argv[1:]):
        config = json.loads((folder / "mlc-chat-config.json").read_text())
        model = gemma3 if config["model_type"].startswith("gemma3") else llama
        logits = model(Weights(folder), config["model_config"], np.array(PROMPT + REPLY))
        rows = [[round(float(value), 6) for value in row] for row in logits]
        start = len(PROMPT) - 1
        document = {
            "prompt_ids": PROMPT,
            "prefill_logits": rows[start],
            "decode": [{"token": token, "logits": rows[start + 1 + i]} for i, token in enumerate(REPLY)],
        }
        (folder / "text_logits.json").write_text(json.dumps(document) + "\n")


main()
