// SPDX-License-Identifier: Apache-2.0
#include "data/text/text_inspect.h"

#include <iomanip>

#include "core/io/printable.h"
#include "core/text_stream.h"
#include "data/images/transforms/transforms.h"
#include "data/loading/batch_maker.h"

namespace hearth::data {

TextInspection inspect_text(const TokenDataset& set, std::int64_t batch_size) {
  TextInspection found;
  set.verify();
  found.source = set.source();
  found.samples = set.size();
  found.vocabulary = set.tokenizer().size();
  found.classes = set.labelled() != nullptr ? set.classes() : 0;
  found.source_vocabulary = set.pairs() != nullptr ? set.pairs()->source_tokenizer().size() : 0;
  found.predicted_tokens = set.predicted_tokens();
  found.characters = set.characters();
  const LoaderOptions options{.batch_size = batch_size};
  found.batches = set.batches(no_transforms(), options)->per_epoch();
  found.padding = set.padding(options);
  found.shares = set.shares();
  found.warnings = set.warnings();
  return found;
}

Json to_json(const TextInspection& inspection) {
  Json result = Json::object();
  result.set("source", inspection.source).set("samples", inspection.samples).set("vocabulary", inspection.vocabulary);
  if (inspection.source_vocabulary > 0) result.set("source_vocabulary", inspection.source_vocabulary);
  if (inspection.classes > 0) result.set("classes", inspection.classes);
  result.set("predicted_tokens", inspection.predicted_tokens).set("characters", inspection.characters);
  result.set("batches", inspection.batches).set("tokens", inspection.padding.tokens);
  result.set("positions", inspection.padding.positions).set("padding", inspection.padding.fraction());
  if (!inspection.shares.empty()) {
    Json shares = Json::array();
    for (const TokenDataset::Share& share : inspection.shares)
      shares.push_back(Json::object()
                           .set("source", share.source)
                           .set("weight", share.weight)
                           .set("rows", share.rows)
                           .set("rows_an_epoch", share.rows_an_epoch));
    result.set("sources", shares);
  }
  result.set("warnings", inspection.warnings.count);
  result.set("first_warnings", Json::array_of(inspection.warnings.first));
  return result;
}

std::string to_text(const TextInspection& inspection) {
  TextStream out;
  out << printable(inspection.source) << ": " << inspection.samples << " rows, ";
  if (inspection.classes > 0)
    out << inspection.classes << " classes\n";
  else
    out << inspection.predicted_tokens << " ids to predict, " << inspection.characters << " characters\n";
  out << "  vocabulary " << inspection.vocabulary;
  if (inspection.source_vocabulary > 0) out << ", of the source " << inspection.source_vocabulary;
  if (inspection.predicted_tokens > 0)
    out << std::fixed << std::setprecision(2) << "; characters an id "
        << static_cast<double>(inspection.characters) / static_cast<double>(inspection.predicted_tokens);
  out << "\n  " << inspection.batches << " batches of " << inspection.padding.positions << " positions in all, padding "
      << std::fixed << std::setprecision(2) << 100 * inspection.padding.fraction() << " %\n";
  for (const TokenDataset::Share& share : inspection.shares)
    out << "  " << printable(share.source) << ": weight " << std::defaultfloat << share.weight << ", "
        << share.rows_an_epoch << " rows of an epoch of training, has " << share.rows << '\n';
  out << "  warnings: " << inspection.warnings.count << '\n';
  for (const std::string& warning : inspection.warnings.first) out << "    " << printable(warning) << '\n';
  return out.str();
}

}  // namespace hearth::data
