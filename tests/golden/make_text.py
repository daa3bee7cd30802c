# SPDX-License-Identifier: Apache-2.0
"""Writes text/: what other libraries make of texts. Needs the packages tokenizers, sentencepiece and sacrebleu.

    python3 make_text.py FILE

FILE is a plain text to learn byte pairs from: the Persuasion that scripts/data/jane_austen writes.
"""

import io
import json
import pathlib
import sys

import sacrebleu
import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parent / "text"

LINES = [
    "",
    " ",
    "Hello, world!",
    "  two blanks   three   ",
    "It's what they've said; I'm sure she'll say 'tis we'd.",
    "IT'S WE'VE DON'T",
    "tabs\tand\nlines\r\n\n  indented",
    "1234 12,5 ½ Ⅷ x² 3rd",
    "naïve café Ångström ÀÉÎÕÜ ñ ç ß ẞ İstanbul ıI",
    "e\u0301 decomposed, a\u030a\u0323 twice",
    "Ελληνικά ΟΔΟΣ και Русский Ёж й",
    "日本語のテキスト 漢字 中文，标点。 한국어 각",
    "हिन्दी में लिखा தமிழ் ไทย",
    "emoji 😀👩‍👩‍👧 🇩🇪 ✓ — – … “quoted” «so» ‹too›",
    "\u00a0no\u2009break\u3000space\u200bzero\ufeffwidth\u00ad",
    "a.b...c!?--d_e#f@g~h`i^j|k\\l/m<n>o=p+q",
    "supercalifragilisticexpialidocious " + "x" * 120,
    "control \x01\x02\x7f\x85 \ufffd end",
    "<s>special</s> tokens <mask> in [MASK] text [CLS]",
    "don't can't won't . , ? !",
    "عربى عَرَبِي עברית שָׁלוֹם",
    "ǅ ǆ ﬁ ligature Ⅳ ª º µ",
]


def pieces_learned(text):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    trainer = trainers.BpeTrainer(vocab_size=600, min_frequency=2, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def wordpiece(text):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([text] + [line for line in LINES if "x" * 100 not in line], trainer)
    return tokenizer


def answers(tokenizer, lines):
    result = []
    for line in lines:
        ids = tokenizer.encode(line, add_special_tokens=False).ids
        result.append({"text": line, "ids": ids, "decoded": tokenizer.decode(ids)})
    return result


def write(name, value):
    (FOLDER / name).write_text(json.dumps(value, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n")


def cased(tokenizer):
    """The same vocabulary read with every switch of the normaliser the other way."""
    other = Tokenizer.from_str(tokenizer.to_str())
    other.normalizer = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False,
                                                  lowercase=False)
    return other


def sentencepiece_model(text):
    """The bytes of a model; its own normalisation is left out, which would be a quarter of a megabyte."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text.split("\n")), model_writer=model,
                                             vocab_size=300, normalization_rule_name="identity", pad_id=3,
                                             control_symbols=["<mask>"], minloglevel=2)
    return model.getvalue()


def sentencepiece_answers(model, lines):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    result = []
    for line in lines:
        ids = processor.encode(line)
        result.append({"text": line, "ids": ids, "decoded": processor.decode(ids)})
    return result


def bleu():
    references = [
        "The cat sat on the mat.",
        "It costs $1,234.56 -- or 12-15 %, they said (twice).",
        "\"Quoted\" &quot;entities&quot; &amp; more <skipped> text",
        "Über die Brücke, gehen 3.5 km weit!",
        "one",
        "Der Befehl öffnet das Dialogfeld, in dem Sie die Seite einrichten können.",
    ]
    outputs = [
        "The cat sat on a mat.",
        "It costs $1,234.56 or 12-15 %, he said (twice).",
        "\"Quoted\" \"entities\" & more text",
        "Über eine Brücke gehen 3.5 km weit!",
        "",
        "Der Befehl öffnet ein Dialogfeld, in dem Sie Seiten einrichten.",
    ]
    tokenizer = sacrebleu.metrics.BLEU(tokenize="13a").tokenizer
    result = sacrebleu.corpus_bleu(outputs, [references])
    short = sacrebleu.corpus_bleu(["no match here"], [["entirely other words stand there"]])
    return {
        "references": references,
        "outputs": outputs,
        "tokens": [tokenizer(line) for line in references],
        "score": result.score,
        "precisions": result.precisions,
        "brevity_penalty": result.bp,
        "no_match": short.score,
        "chrf": sacrebleu.corpus_chrf(outputs, [references]).score,
    }


def main():
    text = pathlib.Path(sys.argv[1]).read_text()[:40000]
    lines = LINES + text.split("\n")[100:160]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "sample.txt").write_text(text)
    bpe = pieces_learned(text)
    bpe.save(str(FOLDER / "bpe.json"), pretty=False)
    write("bpe_answers.json", answers(bpe, lines))
    words = wordpiece(text)
    words.save(str(FOLDER / "wordpiece.json"), pretty=False)
    write("wordpiece_answers.json", answers(words, lines))
    write("wordpiece_cased_answers.json", answers(cased(words), LINES))
    model = sentencepiece_model(text)
    (FOLDER / "sentencepiece.model").write_bytes(model)
    write("sentencepiece_answers.json", sentencepiece_answers(model, LINES))
    write("bleu.json", bleu())


main()
