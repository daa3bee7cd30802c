// SPDX-License-Identifier: Apache-2.0
// A CSV file in a folder, and the datasets made of it.
#pragma once

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"
#include "data/described.h"
#include "data/table/csv.h"
#include "data/table/table_data.h"
#include "tests/support/error_message.h"
#include "tests/support/temp_dir.h"

namespace hearth::data::csv_fixture {

struct CsvFile : testing::Test {
  test::TempDir folder;
  const std::string path = folder / "a.csv";

  void write(const std::string& text, const std::string& name = "a.csv") const {
    folder.write(name, std::vector<std::uint8_t>(text.begin(), text.end()));
  }
  CsvText read(const std::string& text) const {
    write(text);
    return read_csv(path, ',', true);
  }
  std::string fault(const std::string& text) const {
    return test::error_message<DataError>([&] { read(text); });
  }
  DataSplits data(const std::string& more) const {
    return make_data(
        parse_json(join_text(R"({"type": "csv", "path": ")", path, R"(", "workers": 0, )", more, "}"), "t"));
  }
  static const TableDataset& table(const DatasetPointer& part) { return dynamic_cast<const TableDataset&>(*part); }
  static std::vector<float> x(const DatasetPointer& part, std::int64_t row) {
    Random random(0, 0);
    const Tensor tensor = table(part).read(row, random)[0].second;
    return {tensor.data<const float>(), tensor.data<const float>() + tensor.size()};
  }
};

}  // namespace hearth::data::csv_fixture
