// SPDX-License-Identifier: Apache-2.0
#include "data/text/text_options.h"

namespace hearth::data {
namespace {

template <class T>
void describe_files(Fields<T>& fields, const char* what) {
  fields.text("train", &TextFiles::train, {}, std::string("Training sequences: ") + what);
  fields.text("valid", &TextFiles::valid, {}, "As train, for validation.");
  fields.text("test", &TextFiles::test, {}, "As train, for testing.");
  fields.text("packed", &TextFiles::packed, "Folder that `hearth data pack` wrote, instead of sequences.");
  fields.rule([](const T& o) {
    if (!o.packed.empty() && !(o.valid.empty() && o.test.empty()))
      return "packed, a folder, has its own valid and test; leave them out";
    return o.train.empty() == o.packed.empty() ? "either train, files of text, or packed, a folder, is needed" : "";
  });
}

template <class T>
void describe_loading(Fields<T>& fields, const char* share_doc) {
  fields.number("valid_fraction", &DataOptions::valid_fraction, {.min = 0, .below = 1}, share_doc);
  describe_reading(fields);
}

}  // namespace

void describe(Fields<TextData>& fields) {
  describe_files(fields, "files, plain or gzip, read as one text.");
  fields.integer("length", &TextData::length, {.min = 1, .max = 1 << 20}, "Ids in a row of a batch.");
  fields.choice("documents", &TextData::documents,
                {{"files", Documents::files}, {"lines", Documents::lines}, {"paragraphs", Documents::paragraphs}},
                "What a document is, which ends with the end id: a file, a line, or the lines between empty ones. With "
                "packed it is what was packed.");
  fields.boolean("packing", &TextData::packing,
                 "Rows hold whole documents, which see themselves alone, instead of windows that begin anywhere.");
  fields
      .number("mask_probability", &TextData::mask_probability, {.min = 0, .below = 1},
              "Probability of an id to be one of those guessed from all others, which the model `bert` needs (0.15 is "
              "usual); 0: each id is guessed from those before it, as by `gpt`.")
      .formerly("mask_share");
  fields.component("tokenizer", &TextData::tokenizer, tokenizers(),
                   "How the text becomes numbers; null for characters. With packed it is the one beside the ids.");
  describe_loading(fields, "Share of the training text, its end, set aside as `valid` where there is none.");
}

void describe(Fields<ParallelTextData>& fields) {
  describe_files(fields, "one file of lines with a tab between text and translation, or two files of lines.");
  fields.integer("tokens_per_batch", &ParallelTextData::tokens_per_batch, {.min = 0, .max = 1 << 24},
                 "Rows of about equal length are put together up to so many ids a side with padding, whatever "
                 "batch_size says; 0: batch_size rows as they come.");
  fields.integer("buckets", &ParallelTextData::buckets, {.min = 1},
                 "Lengths up to which rows are put together, in order; []: every multiple.");
  fields.integer("multiple", &ParallelTextData::multiple, {.min = 1, .max = 1024},
                 "Lengths, and numbers of rows by tokens_per_batch, are multiples of this.");
  fields.integer("longest", &ParallelTextData::longest, {.min = 2, .max = 1 << 16}, "The most ids a line may be.");
  fields.choice("on_long", &ParallelTextData::on_long, {{"fail", OnFault::fail}, {"skip", OnFault::skip}},
                "Longer lines: stop, or leave them out and count a warning.");
  fields.number("max_ratio", &ParallelTextData::max_ratio, {.min = 1},
                "Pairs whose longer side has more than so many times the ids of the other one are left out and counted "
                "as warnings. null: none.");
  fields.component("tokenizer", &ParallelTextData::tokenizer, tokenizers(),
                   "Of the translations, and of both sides where there is no other; null for characters.");
  fields.component("source_tokenizer", &ParallelTextData::source_tokenizer, tokenizers(),
                   "Of the sequences that are translated; null: the other one, made from both sides.");
  fields.integer("split_seed", &DataOptions::split_seed, {.min = 0}, "Seed of the choice of valid_fraction.");
  describe_loading(fields, "Share of the training pairs set aside as `valid` where there is none.");
}

void describe(Fields<LabelledTextData>& fields) {
  fields
      .text("train", &LabelledTextData::train, {},
            "Training sequences: files of lines, each a label, a tab and a text.")
      .required();
  fields.text("valid", &LabelledTextData::valid, {}, "As train, for validation.");
  fields.text("test", &LabelledTextData::test, {}, "As train, for testing.");
  fields.text("classes", &LabelledTextData::classes, {},
              "The labels in the order of their numbers; []: those of the training text, sorted.");
  fields.integer("length", &LabelledTextData::length, {.min = 3, .max = 1 << 16},
                 "The most ids of a row, with what begins and ends it; the rest of a longer text is cut off.");
  fields.integer(
      "tokens_per_batch", &LabelledTextData::tokens_per_batch, {.min = 0, .max = 1 << 24},
      "Rows of about equal length are put together up to so many ids with padding, whatever batch_size says; "
      "0: batch_size rows.");
  fields.component("tokenizer", &LabelledTextData::tokenizer, tokenizers(),
                   "How sequences become numbers; null for characters.");
  fields.integer("split_seed", &DataOptions::split_seed, {.min = 0}, "Seed of the choice of valid_fraction.");
  describe_loading(fields, "Share of the training text set aside as `valid` where there is none.");
}

}  // namespace hearth::data
