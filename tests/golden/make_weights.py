# SPDX-License-Identifier: Apache-2.0
"""GPT-2 and BERT in plain PyTorch on weights as HuggingFace's transformers names them: what tests of pretrained weights
compare with. Needs PyTorch.

    make_weights.py                              writes hf_bert.safetensors and hf_gpt2.safetensors beside this file
    make_weights.py --minilm MODEL OUT TEXT...   writes, for scripts/parity_minilm, the ids that the model's tokenizer
                                                 gives 10,000 lines of the texts, and PyTorch's embeddings of some;
                                                 needs tokenizers too

The networks are functions of a dictionary of tensors, so that nothing but the names and layouts of the file decides.
"""

import argparse
import json
import pathlib

import torch
import torch.nn.functional as functional
from make_models import write_safetensors

LINES, EMBEDDED, LENGTH = 10_000, 256, 256


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def bert(weights, ids, seen, heads):
    """The encoder: [N, T, width]. seen: what is no padding."""

    def linear(name, x):
        return functional.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(name, x):
        return functional.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], 1e-12)

    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm("embeddings.LayerNorm", x + weights["embeddings.position_embeddings.weight"][: ids.shape[1]])
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in weights:
        at = f"encoder.layer.{layer}."
        q, k, v = (heads_of(linear(f"{at}attention.self.{part}", x), heads) for part in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~seen[:, None, None, :], float("-inf"))
        y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
        x = norm(at + "attention.output.LayerNorm", x + linear(at + "attention.output.dense", y))
        y = linear(at + "output.dense", functional.gelu(linear(at + "intermediate.dense", x)))
        x = norm(at + "output.LayerNorm", x + y)
        layer += 1
    return x


def sentence_embedding(tokens, seen):
    mean = (tokens * seen[..., None]).sum(1) / seen.sum(1, keepdim=True)
    return functional.normalize(mean, dim=-1)


def gpt2(weights, ids, heads):
    """Logits: [N, T, vocabulary]."""

    def conv1d(name, x):
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    def norm(name, x):
        return functional.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], 1e-5)

    x = weights["wte.weight"][ids] + weights["wpe.weight"][: ids.shape[1]]
    layer = 0
    while f"h.{layer}.ln_1.weight" in weights:
        at = f"h.{layer}."
        q, k, v = (heads_of(part, heads) for part in conv1d(at + "attn.c_attn", norm(at + "ln_1", x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        y = (scores.masked_fill(later, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(-2)
        x = x + conv1d(at + "attn.c_proj", y)
        y = functional.gelu(conv1d(at + "mlp.c_fc", norm(at + "ln_2", x)), approximate="tanh")
        x = x + conv1d(at + "mlp.c_proj", y)
        layer += 1
    return norm("ln_f", x) @ weights["wte.weight"].T


def drawn(shapes):
    weights = {}
    for name, shape in shapes.items():
        draw = torch.randn(shape) * 0.3
        weights[name] = draw + 1 if name.endswith(("LayerNorm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight")) else draw
    return weights


def bert_shapes(vocabulary, context, layers, width, hidden):
    dense = lambda name, outputs, inputs: {name + ".weight": (outputs, inputs), name + ".bias": (outputs,)}
    norm = lambda name: {name + ".weight": (width,), name + ".bias": (width,)}
    shapes = {
        "embeddings.word_embeddings.weight": (vocabulary, width),
        "embeddings.position_embeddings.weight": (context, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    } | norm("embeddings.LayerNorm")
    for layer in range(layers):
        at = f"encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            shapes |= dense(at + "attention.self." + part, width, width)
        shapes |= dense(at + "attention.output.dense", width, width) | norm(at + "attention.output.LayerNorm")
        shapes |= dense(at + "intermediate.dense", hidden, width) | dense(at + "output.dense", width, hidden)
        shapes |= norm(at + "output.LayerNorm")
    return shapes | dense("pooler.dense", width, width)


def gpt2_shapes(vocabulary, context, layers, width):
    conv1d = lambda name, inputs, outputs: {name + ".weight": (inputs, outputs), name + ".bias": (outputs,)}
    norm = lambda name: {name + ".weight": (width,), name + ".bias": (width,)}
    shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (context, width)} | norm("ln_f")
    for layer in range(layers):
        at = f"h.{layer}."
        shapes |= norm(at + "ln_1") | conv1d(at + "attn.c_attn", width, 3 * width)
        shapes |= conv1d(at + "attn.c_proj", width, width) | norm(at + "ln_2")
        shapes |= conv1d(at + "mlp.c_fc", width, 4 * width) | conv1d(at + "mlp.c_proj", 4 * width, width)
    return shapes


def in_double(weights):
    return {name: value.double() if value.is_floating_point() else value for name, value in weights.items()}


def golden(folder):
    """Inputs and results are in the metadata: every tensor is a weight."""
    torch.manual_seed(5)
    ids = torch.randint(1, 17, (3, 6))
    ids[1, 4:] = ids[2, 2:] = 0
    seen = ids != 0
    weights = drawn(bert_shapes(17, 8, 2, 8, 12))
    weights["embeddings.position_ids"] = torch.arange(8)[None]
    result = sentence_embedding(bert(in_double(weights), ids, seen, 2), seen)
    tell = lambda result: {"format": "pt", "ids": json.dumps(ids.tolist()), "result": json.dumps(result.flatten().tolist())}
    write_safetensors(folder / "hf_bert.safetensors", weights, tell(result))
    weights = drawn(gpt2_shapes(17, 8, 2, 8))
    result = gpt2(in_double(weights), ids, 2)
    named = {"transformer." + name: value for name, value in weights.items()}
    named |= {f"transformer.h.{layer}.attn.bias": torch.ones(1, 1, 8, 8).tril() for layer in range(2)}
    named["lm_head.weight"] = weights["wte.weight"]
    write_safetensors(folder / "hf_gpt2.safetensors", named, tell(result))


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    kinds = {"F32": torch.float32, "I64": torch.int64}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=kinds[entry["dtype"]]).view(entry["shape"])
    return tensors


def minilm(model, out, paths):
    import tokenizers

    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if len(lines) < LINES:
        raise SystemExit(f"{len(lines)} lines of text; {LINES} are needed")
    lines = [lines[i * len(lines) // LINES] for i in range(LINES)]
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    rows = [encoding.ids for encoding in tokenizer.encode_batch(lines)]
    heads = json.loads((model / "config.json").read_text())["num_attention_heads"]
    weights = in_double(read_safetensors(model / "model.safetensors"))
    chosen = range(0, LINES, LINES // EMBEDDED)
    chosen = [row for row in chosen if len(rows[row]) <= LENGTH][:EMBEDDED]
    embeddings = []
    for row in chosen:
        ids = torch.tensor([rows[row]])
        seen = torch.ones_like(ids, dtype=torch.bool)
        embeddings.append(sentence_embedding(bert(weights, ids, seen, heads), seen)[0])
    out.mkdir(parents=True, exist_ok=True)
    (out / "lines.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    tensors = {
        "ids": torch.tensor([one for row in rows for one in row]),
        "counts": torch.tensor([len(row) for row in rows]),
        "chosen": torch.tensor(chosen),
        "embeddings": torch.stack(embeddings),
    }
    write_safetensors(out / "expected.safetensors", tensors, {"heads": json.dumps(heads)})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minilm", nargs="+", type=pathlib.Path, metavar="PATH")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        if arguments.minilm:
            model, out, *texts = arguments.minilm
            minilm(model, out, texts)
        else:
            golden(pathlib.Path(__file__).parent)


if __name__ == "__main__":
    main()
