// SPDX-License-Identifier: Apache-2.0
// What the columns of a CSV file are taken for: numbers, categories, or neither.
#include "data/table/csv_columns.h"

#include <functional>

#include "tests/data/table/csv_fixture.h"

namespace hearth::data::csv_columns_test {
namespace {

using test::contains;
using test::error_message;

struct CsvColumns : csv_fixture::CsvFile {};

TEST_F(CsvColumns, FewTextsAmongNumbersAreFaults) {
  const std::string rest = R"("target": "y", "test_fraction": 0)";
  const auto with = [&](const std::string& texts, int numbers, const std::string& target = "1") -> std::string {
    std::string text = "a,y\n";
    for (int i = 0; i < numbers; ++i) text += join_text(i, ",", i, "\n");
    write(text + texts + "," + target + "\n");
    try {
      return data(rest).train ? std::string() : "no rows";
    } catch (const DataError& error) {
      return std::string(error.what());
    }
  };
  for (const char* text : {"1.5x", "-", "None", "0x10", "+-1", "NAN", "1e", "1 2"}) {
    const std::string field = join_text("\"", text, "\"");
    const std::string fault = with(field, 9);
    EXPECT_TRUE(contains(fault, path + ": line 11, column \"a\": " + field + " is no number")) << fault;
    EXPECT_TRUE(contains(fault, "leave the field empty (or NA, N/A, NaN, nan, null, NULL, ?)")) << fault;
    EXPECT_TRUE(contains(fault, "data.categories")) << fault;
    EXPECT_TRUE(contains(fault, "9 of the 10 values of the column are numbers")) << fault;
  }
  for (const char* text : {"inf", "-inf", "Infinity", "1e39", "-3.5e38", "1e400"}) {
    const std::string fault = with(text, 9);
    EXPECT_TRUE(contains(fault, join_text("line 11, column \"a\": \"", text, "\" is outside the range of f32")))
        << fault;
    EXPECT_TRUE(contains(with(text, 1), "outside the range of f32")) << text;
  }
  for (const char* text : {"3.4e38", "1e-39", "1e-400", "+1.5", " 2 "}) EXPECT_EQ(with(text, 9), "") << text;
  const std::string fault = with("0", 9, "x");
  EXPECT_TRUE(contains(fault, "line 11, column \"y\": \"x\" is no number")) << fault;
  EXPECT_TRUE(contains(fault, "data.target_type to \"category\"")) << fault;
  EXPECT_TRUE(contains(with("0", 9, "1e39"), "line 11, column \"y\": \"1e39\" is outside the range of f32"));
}

TEST_F(CsvColumns, NumbersThatAreNoneAreRefused) {
  const auto refusal = [&](const std::string& header, const std::function<std::string(int)>& field,
                           const std::string& more = "") {
    std::string text = header + ",b,y\n";
    for (int i = 0; i < 40; ++i) text += join_text(field(i), ",", i * i % 7, ",", i % 2 == 0 ? "yes" : "no", "\n");
    write(text);
    try {
      return data(R"("target": "y", "test_fraction": 0)" + more).train ? std::string() : "no rows";
    } catch (const DataError& error) {
      return std::string(error.what());
    }
  };
  const auto codes = [](int i) { return join_text(i < 3 ? "0" : "", 1000 + 7 * i); };
  EXPECT_TRUE(contains(refusal("zip", codes), "line 2, column \"zip\": \"01000\" begins with 0 as codes do"));
  EXPECT_EQ(refusal("zip", codes, R"(, "categories": ["zip"])"), "");
  EXPECT_EQ(refusal("zip", codes, R"(, "ignore": ["zip"])"), "");
  EXPECT_EQ(refusal("zip", codes, R"(, "columns": ["zip", "b"])"), "");
  EXPECT_EQ(refusal("a", [](int i) { return join_text("0.", 1 + i); }), "");
  const auto index = [](int i) { return join_text(i); };
  for (const char* name : {"", "Unnamed: 0"})
    EXPECT_TRUE(contains(refusal(name, index), "column 1 has no name and counts the rows")) << name;
  EXPECT_EQ(refusal("x", index), "") << "a column with a name may count";
  EXPECT_EQ(refusal("", [](int i) { return join_text(i * i); }), "");
}

TEST_F(CsvColumns, ClassesThatAreAlikeAreRefused) {
  const auto refusal = [&](const std::vector<std::string>& labels, const std::string& more = "") {
    std::string text = "a,y\n";
    for (int i = 0; i < 40; ++i)
      text += join_text(i * i % 7, ",", labels[static_cast<std::size_t>(i) % labels.size()], "\n");
    write(text);
    try {
      return data(R"("target": "y", "test_fraction": 0)" + more).train ? std::string() : "no rows";
    } catch (const DataError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_TRUE(contains(refusal({"yes", "no", "Yes"}), "\"Yes\" and \"yes\" differ in blanks or case only"));
  EXPECT_TRUE(contains(refusal({"no", " no", "yes"}), "differ in blanks or case only"));
  EXPECT_EQ(refusal({"yes", "no", "Yes"}, R"(, "classes": ["yes", "no", "Yes"])"), "");
  EXPECT_TRUE(contains(refusal({"no", "yes", std::string("a\0b", 3)}), "a zero byte"));
}

TEST_F(CsvColumns, ColumnsOfTextsAndNumbersAreCategories) {
  const std::string rest = R"("target": "y", "test_fraction": 0)";
  std::string text = "a,y\n";
  for (int i = 0; i < 8; ++i) text += join_text(i, ",", i, "\n");
  write(text + "1e39,1\nnone,1\n");
  EXPECT_TRUE(contains(error_message<DataError>([&] { data(rest); }), "1e39"));
  write(text + "none,1\n");
  const std::string mixed = error_message<DataError>([&] { data(rest); });
  EXPECT_TRUE(contains(mixed, "line 10, column \"a\": \"none\" is no number; leave the field empty")) << mixed;
  EXPECT_TRUE(contains(mixed, "of 9 values of the column 8 are plain numbers")) << mixed;
  write("a,y\n1,1\nred,1\nblue,1\n");
  EXPECT_EQ(table(data(rest).train).facts().columns[0].values.size(), 3u) << "more than half are no numbers";
  write(text + "8,1\n1e39,1\nnone,1\n");
  const DataSplits declared = data(rest + R"(, "categories": ["a"])");
  EXPECT_EQ(table(declared.train).facts().columns[0].values.size(), 11u);
  // Other files of the run are held to what the first one said.
  write(text);
  write("a,y\ninf,1\n", "test.csv");
  EXPECT_TRUE(contains(
      error_message<DataError>([&] { data(R"("target": "y", "test": ")" + (folder / "test.csv").string() + "\""); }),
      "test.csv: line 2, column \"a\": \"inf\" is outside the range of f32"));
}

TEST_F(CsvColumns, NumbersInAnotherNotationAreNoCategories) {
  const std::string rest = R"("target": "y", "test_fraction": 0)";
  const auto column = [&](const std::vector<std::string>& fields) {
    std::string text = "a,y\n";
    for (const std::string& field : fields) text += join_text("\"", field, "\",1\n");
    write(text);
    return error_message<DataError>([&] { data(rest); });
  };
  struct Case {
    const char *first, *second, *what;
  };
  for (const auto& [first, second, what] :
       {Case{"1,5", "2,25", "a number with separators"}, Case{"1,234.5", "12,000", "a number with separators"},
        Case{"1.234,5", "7,0", "a number with separators"}, Case{"1'234", "2'000'000", "a number with separators"},
        Case{"1 234", "5 678", "a number with separators"},
        Case{"1\u00a0234", "5\u202f678", "a number with separators"}, Case{"12 %", "7.5%", "a percentage"},
        Case{"$1.50", "$12", "an amount of money"}, Case{"12,50 \u20ac", "3 EUR", "an amount of money"},
        Case{"-\u00a35", "(1,234)", "an amount of money"}, Case{"2024-05-03", "1999-12-31T12:00:00", "a date"},
        Case{"3/5/2024", "12/31/1999", "a date"}, Case{"03.05.2024", "31.12.1999 23:59", "a date"},
        Case{"9:30", "23:59:59.5", "a time of day"}}) {
    const std::string fault = column({first, second, second, first});
    EXPECT_TRUE(contains(fault, join_text("line 2, column \"a\": \"", first, "\" looks like ", what))) << fault;
    EXPECT_TRUE(contains(fault, "data.categories")) << fault;
    EXPECT_EQ(contains(fault, "set data.decimal to \",\""), std::string(first) == "1,5") << fault;
    // Beside plain numbers too.
    EXPECT_TRUE(contains(column({"1", "2", first, "3"}), "looks like")) << first;
  }
  // The target as well.
  write("a,y\n1,\"1,5\"\n2,\"2,5\"\n");
  EXPECT_TRUE(contains(error_message<DataError>([&] { data(rest); }), "column \"y\": \"1,5\" looks like a number"));
  for (const char* name : {"40-49", "1st", "v2", "A1", "3 rooms", "12345-678", "50+", "<5", "one", "10-Q"}) {
    write(join_text("a,y\n", name, ",1\nother,1\n", name, ",1\n"));
    EXPECT_EQ(table(data(rest).train).facts().columns[0].values.size(), 2u) << name;
  }
}

TEST_F(CsvColumns, NumbersAreReadHoweverTheirSpacesAndSignsAreWritten) {
  write("a,y\n\u22121.5,1\n\t2 ,2\n\u00a0+3\u202f,3\n1e\u22122,4\n");
  const DataSplits splits = data(R"("target": "y", "test_fraction": 0, "standardize": false)");
  const std::vector<float> values{-1.5f, 2.0f, 3.0f, 0.01f};
  for (std::int64_t row = 0; row < 4; ++row) EXPECT_EQ(x(splits.train, row)[0], values[static_cast<std::size_t>(row)]);
}

TEST_F(CsvColumns, TheDecimalMarkMayBeAComma) {
  write("a;b;y\n1,5;red;0,5\n-2;blue;1\n1e3;red;2,25\n");
  const std::string rest =
      R"("target": "y", "test_fraction": 0, "standardize": false, "delimiter": ";", "decimal": ",")";
  const DataSplits splits = data(rest);
  EXPECT_EQ(x(splits.train, 0), (std::vector<float>{1.5f, 0, 1}));
  EXPECT_EQ(x(splits.train, 2), (std::vector<float>{1000, 0, 1}));
  EXPECT_EQ(table(splits.train).rows().targets, (std::vector<float>{0.5f, 1, 2.25f}));
  // A point is one of thousands there, or a mistake.
  write("a;y\n1.500;1\n2,5;2\n");
  EXPECT_TRUE(contains(error_message<DataError>([&] { data(rest); }), "\"1.500\" looks like a number with separators"));
  EXPECT_TRUE(contains(error_message<ConfigError>([&] { data(R"("target": "y", "decimal": ",")"); }),
                       "decimal and delimiter are two characters"));
}

TEST_F(CsvColumns, NamesAndTextAreNoCategories) {
  std::string text = "who,kind,y\n";
  for (int i = 0; i < 40; ++i) text += join_text("person ", i, i % 2 ? ",a," : ",b,", i, "\n");
  write(text);
  const std::string rest = R"("target": "y", "test_fraction": 0)";
  const std::string fault = error_message<DataError>([&] { data(rest); });
  EXPECT_TRUE(contains(fault, "column \"who\" has 40 different strings in 40 rows")) << fault;
  EXPECT_TRUE(contains(fault, "data.ignore")) << fault;
  EXPECT_EQ(named_columns(table(data(rest + R"(, "ignore": ["who"])").train).facts()), "categories kind (2 values)");
  EXPECT_EQ(table(data(rest + R"(, "categories": ["who"])").train).facts().columns[0].values.size(), 40u);
  EXPECT_TRUE(contains(
      error_message<DataError>([&] { data(R"("target": "who", "test_fraction": 0, "ignore": ["y"])"); }), "\"who\""));
}

TEST_F(CsvColumns, ColumnsAreNamedWithWhatTheyWereTakenFor) {
  std::string names, values;
  for (int i = 0; i < 10; ++i) names += join_text("n", i, ","), values += join_text(i, ",");
  write(names + "kind,y\n" + values + "a,1\n" + values + "b,2\n");
  EXPECT_EQ(named_columns(table(data(R"("target": "y", "test_fraction": 0)").train).facts()),
            "numbers n0, n1, n2, n3, n4, n5, n6, n7 and 2 more; categories kind (2 values)");
}

}  // namespace
}  // namespace hearth::data::csv_columns_test
