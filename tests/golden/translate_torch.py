# SPDX-License-Identifier: Apache-2.0
"""The PyTorch twin of a translation run: the same network, data, update and schedule, read from the same configuration.

    translate_torch.py CONFIG.json [--tokenizer tokenizer.json] [--updates N] [--device cpu] [--beam 4] [--limit N]

Trains, and prints the loss every 50 updates, that of the validation part, and BLEU of the test part as JSON lines:
what `hearth train` and `hearth eval` are held against. `--tokenizer` is the file that `hearth data pack` writes; without
it byte pairs are learned here. Needs PyTorch, tokenizers and sacrebleu. Only for configurations with one vocabulary for
both sides, `tokens_per_batch`, norms before each part, AdamW and an inverse square root or cosine schedule.
"""

import argparse
import json
import math
import random
import time

import sacrebleu
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional as F

PAD, BEGIN, END = 0, 2, 3
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]


class Attention(nn.Module):
    def __init__(self, model, causal):
        super().__init__()
        self.heads, self.dropout, self.causal = model["heads"], model["dropout"], causal
        width = model["width"]
        self.query, self.memory, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, memory, seen):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in (self.query(x), *self.memory(memory).chunk(2, -1)))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None if seen is None else seen[:, None, None, :],
                                           dropout_p=self.dropout if self.training else 0.0, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, model, decodes):
        super().__init__()
        width, hidden = model["width"], model["hidden"]
        self.attention = Attention(model, decodes)
        self.across = Attention(model, False) if decodes else None
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(model["dropout"])

    def forward(self, x, seen, memory=None):
        y = self.norms[0](x)
        x = x + self.dropout(self.attention(y, y, seen if memory is None else None))
        if memory is not None:
            x = x + self.dropout(self.across(self.norms[1](x), memory, seen))
        return x + self.dropout(self.down(F.relu(self.up(self.norms[2](x)))))


class Translator(nn.Module):
    def __init__(self, model, vocabulary, context):
        super().__init__()
        width = model["width"]
        self.tokens = nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleList(Layer(model, False) for _ in range(model["layers"]))
        self.decoder = nn.ModuleList(Layer(model, True) for _ in range(model["decoder_layers"]))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(model["dropout"])
        angles = torch.arange(context)[:, None] * 10000.0 ** (-(torch.arange(width) // 2 * 2) / width)
        self.register_buffer("positions", torch.where(torch.arange(width) % 2 == 0, angles.sin(), angles.cos()))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.tokens.weight, std=width**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def embed(self, ids):
        return self.dropout(self.tokens(ids) * self.tokens.embedding_dim**0.5 + self.positions[: ids.shape[1]])

    def encode(self, source):
        x, seen = self.embed(source), source != PAD
        for layer in self.encoder:
            x = layer(x, seen)
        return self.norms[0](x), seen

    def decode(self, memory, seen, target):
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, seen, memory)
        return F.linear(self.norms[1](x), self.tokens.weight)


def read_pairs(paths):
    return [line.rstrip("\n").split("\t") for path in paths for line in open(path, encoding="utf-8")]


def tokenizer_of(config, path):
    if path:
        return Tokenizer.from_file(path)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=config["tokenizer"]["vocabulary"], min_frequency=2, special_tokens=SPECIAL,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator((text for pair in read_pairs(config["train"]) for text in pair), trainer)
    return tokenizer


def encoded(tokenizer, pairs, longest):
    """Ids of source and end, and of begin, target and end; those that are too long are left out."""
    sides = [[item.ids for item in tokenizer.encode_batch([pair[i] for pair in pairs], add_special_tokens=False)]
             for i in (0, 1)]
    rows = [(source + [END], [BEGIN] + target + [END]) for source, target in zip(*sides)]
    return [row for row in rows if len(row[0]) <= longest and len(row[1]) <= longest + 1]


def padded(rows, device):
    longest = (max(map(len, rows)) + 7) // 8 * 8
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], device=device)


def batches(rows, tokens, shuffle):
    order = list(rows)
    if shuffle:
        random.shuffle(order)
    order.sort(key=lambda row: (max(len(row[0]), len(row[1])) + 7) // 8)
    result, batch, longest = [], [], 0
    for row in order:
        length = (max(len(row[0]), len(row[1]) - 1) + 7) // 8 * 8
        if batch and max(longest, length) * (len(batch) + 1) > tokens:
            result.append(batch)
            batch, longest = [], 0
        batch.append(row)
        longest = max(longest, length)
    result.append(batch)
    if shuffle:
        random.shuffle(result)
    return result


def loss_of(model, batch, smoothing, device):
    """The summed loss and how many ids it is of."""
    source, target = padded([row[0] for row in batch], device), padded([row[1] for row in batch], device)
    labels = target[:, 1:].masked_fill(target[:, 1:] == PAD, -100)
    logits = model.decode(*model.encode(source), target[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), label_smoothing=smoothing, reduction="sum")
    return loss, int((labels >= 0).sum())


def learning_rate(config, update, updates):
    schedule, base = config["schedule"], config["optimizer"]["lr"]
    warmup = schedule.get("warmup_steps", 0)
    if update < warmup:
        return base * (update + 1) / warmup
    if schedule["type"] == "inverse_sqrt":
        return base * math.sqrt(max(1, warmup) / (update + 1))
    final = schedule.get("final_factor", 0.0)
    return base * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * (update - warmup) / max(1, updates - warmup))))


def beam_search(model, source, beam, most):
    """The best hypothesis of each row by log probability over length, decoded as a whole again for each id."""
    memory, seen = model.encode(source)
    rows = source.shape[0]
    memory, seen = memory.repeat_interleave(beam, 0), seen.repeat_interleave(beam, 0)
    ids = torch.full((rows * beam, 1), BEGIN, device=source.device)
    scores = torch.full((rows, beam), -torch.inf, device=source.device)
    scores[:, 0] = 0
    done = [[] for _ in range(rows)]
    for step in range(most):
        logs = model.decode(memory, seen, ids)[:, -1].float().log_softmax(-1).unflatten(0, (rows, beam))
        best, places = (scores[:, :, None] + logs).flatten(1).topk(2 * beam)
        parents, tokens = places // logs.shape[-1], places % logs.shape[-1]
        chosen = torch.zeros(rows, beam, 3, dtype=torch.long)
        scores = torch.full_like(scores, -torch.inf)
        for row in range(rows):
            kept = 0
            for score, parent, token in zip(best[row].tolist(), parents[row].tolist(), tokens[row].tolist()):
                if token == END:
                    done[row].append((score / (step + 1), ids[row * beam + parent, 1:].tolist()))
                elif kept < beam:
                    chosen[row, kept] = torch.tensor([row * beam + parent, token, 0])
                    scores[row, kept] = score
                    kept += 1
        flat = chosen.flatten(0, 1).to(ids.device)
        ids = torch.cat([ids[flat[:, 0]], flat[:, 1:2]], 1)
        if all(len(hypotheses) >= beam for hypotheses in done):
            break
    open_ids = ids.unflatten(0, (rows, beam))
    return [max(hypotheses)[1] if hypotheses else open_ids[row, 0, 1:].tolist() for row, hypotheses in enumerate(done)]


def bleu_of(model, tokenizer, pairs, beam, longest, device):
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]))
    outputs = [""] * len(pairs)
    for begin in range(0, len(order), 32):
        part = order[begin : begin + 32]
        sources = [(item.ids[: longest - 1] + [END]) for item in
                   tokenizer.encode_batch([pairs[i][0] for i in part], add_special_tokens=False)]
        source = padded(sources, device)
        for i, ids in zip(part, beam_search(model, source, beam, min(longest, 2 * source.shape[1] + 8))):
            outputs[i] = tokenizer.decode(ids)
    return sacrebleu.corpus_bleu(outputs, [[pair[1] for pair in pairs]]).score


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config")
    parser.add_argument("--tokenizer")
    parser.add_argument("--updates", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--limit", type=int, help="translate only so many test sentences; 0: none")
    options = parser.parse_args()
    config = json.load(open(options.config))
    data, device = config["data"], options.device
    random.seed(config["seed"])
    torch.manual_seed(config["seed"])
    tokenizer = tokenizer_of(data, options.tokenizer)
    train = encoded(tokenizer, read_pairs(data["train"]), data["longest"])
    valid = encoded(tokenizer, read_pairs(data["valid"]), data["longest"])
    model = Translator(config["model"], tokenizer.get_vocab_size(), 2 * data["longest"]).to(device)
    rule = config["optimizer"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rule["lr"], betas=(0.9, rule.get("beta2", 0.999)),
                                  weight_decay=rule.get("weight_decay", 0.0), fused=True)
    smoothing = config["loss"].get("label_smoothing", 0.0)
    narrow = lambda: torch.autocast(device.split(":")[0], dtype=torch.bfloat16,
                                    enabled=config.get("precision", {}).get("dtype") == "bf16")
    updates = options.updates or config["train"]["epochs"] * len(batches(train, data["tokens_per_batch"], False))
    update, total, count, begin = 0, 0.0, 0, time.time()
    while update < updates:
        for batch in batches(train, data["tokens_per_batch"], True):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, update, updates)
            with narrow():
                loss, ids = loss_of(model, batch, smoothing, device)
            optimizer.zero_grad(set_to_none=True)
            (loss / ids).backward()
            if "clip_norm" in config["train"]:
                nn.utils.clip_grad_norm_(model.parameters(), config["train"]["clip_norm"])
            optimizer.step()
            update, total, count = update + 1, total + loss.item(), count + ids
            if update % 50 == 0 or update == updates:
                print(json.dumps({"update": update, "loss": total / count, "seconds": time.time() - begin}), flush=True)
                total, count = 0.0, 0
            if update == updates:
                break
    model.eval()
    with torch.no_grad(), narrow():
        sums = [loss_of(model, batch, 0.0, device) for batch in batches(valid, data["tokens_per_batch"], False)]
        print(json.dumps({"valid_loss": float(sum(loss for loss, _ in sums)) / sum(ids for _, ids in sums)}), flush=True)
        pairs = read_pairs(data["test"])[: options.limit]
        if pairs:
            print(json.dumps({"bleu": bleu_of(model, tokenizer, pairs, options.beam, data["longest"], device)}))


main()
