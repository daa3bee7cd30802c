# SPDX-License-Identifier: Apache-2.0
"""Small random networks as HuggingFace's transformers saves them, and what it computes with them in f64: what
tests/models/weights_import_test.cpp compares with. Needs PyTorch and transformers.

    make_transformers.py    writes a folder for each network below transformers/ beside this file

Each folder has model.safetensors and config.json as save_pretrained() writes them, and expected.json with token ids and
results; of a head over the vocabulary those of tokens that are no padding.
"""

import json
import pathlib
import shutil

import torch
import transformers

SIZES = {"vocab_size": 17, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
GPT2 = {"vocab_size": 17, "n_positions": 8, "n_embd": 8, "n_layer": 2, "n_head": 4}
DISTILBERT = {"vocab_size": 17, "max_position_embeddings": 8, "n_layers": 2, "n_heads": 4, "dim": 8, "hidden_dim": 12}
# The padding's id is not 1 in one of them, so that positions begin elsewhere.
ROBERTA = SIZES | {"max_position_embeddings": 12, "type_vocab_size": 1, "layer_norm_eps": 1e-5}

NETWORKS = {
    "bert_relu": ("BertForMaskedLM", SIZES | {"max_position_embeddings": 8, "hidden_act": "relu", "layer_norm_eps": 1e-3}),
    "bert_classifier": (
        "BertForSequenceClassification",
        SIZES | {"max_position_embeddings": 8, "hidden_act": "gelu_new", "num_labels": 3},
    ),
    "roberta": ("RobertaForMaskedLM", ROBERTA | {"pad_token_id": 1}),
    "roberta_classifier": ("RobertaForSequenceClassification", ROBERTA | {"pad_token_id": 3, "num_labels": 3}),
    "roberta_encoder": ("RobertaModel", ROBERTA | {"hidden_act": "silu"}),
    "distilbert": ("DistilBertForMaskedLM", DISTILBERT | {"activation": "relu"}),
    "distilbert_classifier": ("DistilBertForSequenceClassification", DISTILBERT | {"num_labels": 3}),
    "gpt2_scaled": (
        "GPT2LMHeadModel",
        GPT2 | {"activation_function": "relu", "layer_norm_epsilon": 1e-3, "scale_attn_by_inverse_layer_idx": True},
    ),
    "gpt2_unscaled": ("GPT2LMHeadModel", GPT2 | {"activation_function": "gelu", "scale_attn_weights": False, "n_inner": 12}),
    "gpt2_untied": ("GPT2LMHeadModel", GPT2 | {"tie_word_embeddings": False}),
}


def token_ids(pad):
    ids = torch.randint(4, 17, (3, 6))
    ids[1, 4:] = ids[2, 2:] = pad
    return ids


def make(folder, kind, options):
    config = getattr(transformers, kind.split("For")[0].removesuffix("LMHeadModel").removesuffix("Model") + "Config")
    network = getattr(transformers, kind)(config(**options)).eval()
    for name, parameter in network.named_parameters():
        centre = 1.0 if "norm" in name.lower().rsplit(".", 2)[-2] and name.endswith("weight") else 0.0
        parameter.data = torch.randn_like(parameter) * 0.3 + centre
    if hasattr(network, "tie_weights"):
        network.tie_weights()
    shutil.rmtree(folder, ignore_errors=True)
    network.save_pretrained(folder)
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    network = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    pads = not kind.startswith("GPT2")
    ids = token_ids(network.config.pad_token_id) if pads else torch.randint(0, 17, (3, 6))
    seen = ids != network.config.pad_token_id if pads else torch.ones_like(ids, dtype=torch.bool)
    result = network(input_ids=ids, attention_mask=seen.long() if pads else None)
    if kind.endswith("Model") and not kind.startswith("GPT2"):  # an encoder: the mean of its tokens
        values = (result.last_hidden_state * seen[..., None]).sum(1) / seen.sum(1, keepdim=True)
    else:
        values = result.logits if "Sequence" in kind else result.logits[seen]
    expected = {"ids": ids.tolist(), "result": values.flatten().tolist()}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def main():
    torch.set_num_threads(1)
    root = pathlib.Path(__file__).parent / "transformers"
    with torch.no_grad():
        for seed, (name, (kind, options)) in enumerate(NETWORKS.items()):
            torch.manual_seed(seed)
            make(root / name, kind, options)


if __name__ == "__main__":
    main()
