// SPDX-License-Identifier: Apache-2.0
// CSV files and NumPy arrays: parsing, what is learned of columns, splits, and rows of other files.
#include "data/table/table_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/build.h"
#include "core/error.h"
#include "core/random.h"
#include "data/described.h"
#include "data/fingerprint.h"
#include "data/table/csv.h"
#include "data/table/npy.h"
#include "tests/data/table/csv_fixture.h"

namespace hearth::data::table_test {
namespace {

using test::contains;
using test::error_message;

using Bytes = std::vector<std::uint8_t>;

struct CsvTest : csv_fixture::CsvFile {};

TEST_F(CsvTest, ReadsQuotesLineBreaksAndEmptyLines) {
  const CsvText csv = read(
      "\xef\xbb\xbf"
      "a,\"b,c\",d\r\n1,\"x \"\"y\"\"\nz\",\r\n\n,2,3");
  EXPECT_EQ(csv.names, (std::vector<std::string>{"a", "b,c", "d"}));
  ASSERT_EQ(csv.rows.size(), 2u);
  EXPECT_EQ(csv.rows[0], (std::vector<std::string>{"1", "x \"y\"\nz", ""}));
  EXPECT_EQ(csv.rows[1], (std::vector<std::string>{"", "2", "3"}));
  EXPECT_EQ(csv.place(1, 0), path + ": line 5, column \"a\"");
  EXPECT_EQ(read("x\n1\n\n\"\"\n2\n").rows, (std::vector<std::vector<std::string>>{{"1"}, {""}, {"2"}}))
      << "a field that is quoted is one";
}

TEST_F(CsvTest, RefusesWhatIsNoTable) {
  EXPECT_TRUE(contains(fault("a,b\n1,2\n3\n"), "line 3: 1 fields in a table of 2 columns"));
  EXPECT_TRUE(contains(fault("a,b\n1,\"2\n3\n"), "line 2: a quote that is not closed"));
  EXPECT_TRUE(contains(fault("a,b\n1,\"2\"x\n"), "line 2: text behind a closing quote"));
  EXPECT_TRUE(contains(fault("a,a\n1,2\n"), "two columns are named \"a\""));
  EXPECT_TRUE(contains(fault("a,b\n1,\xff\n"), "line 2: a byte that is no UTF-8"));
  EXPECT_TRUE(contains(fault("a,b\n"), "has no rows"));
  EXPECT_TRUE(contains(fault(""), "has no rows"));
}

TEST_F(CsvTest, LearnsColumnsOnTheTrainingSplitAlone) {
  write("size,colour,id,y\n1,red,7,a\n3,blue,8,b\n5,red,9,a\n");
  write("size,colour,id,y\n100,green,1,b\n", "test.csv");
  const DataSplits splits =
      data(R"("test": ")" + (folder / "test.csv").string() + R"(", "target": "y", "ignore": ["id"])");
  const TableFacts& facts = table(splits.train).facts();
  ASSERT_EQ(facts.columns.size(), 2u);
  EXPECT_EQ(facts.columns[0].mean, 3);
  EXPECT_DOUBLE_EQ(facts.columns[0].deviation, std::sqrt(8.0 / 3));
  EXPECT_EQ(facts.columns[1].values, (std::vector<std::string>{"blue", "red"}));
  EXPECT_EQ(facts.classes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(x(splits.train, 1), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(x(splits.test, 0), (std::vector<float>{static_cast<float>(97 / std::sqrt(8.0 / 3)), 0, 0}))
      << "a value that the training split lacks is none of the known ones";
  Random random(0, 0);
  EXPECT_EQ(table(splits.test).read(0, random)[1].second.data<const std::int64_t>()[0], 1);
  EXPECT_EQ(x(data(R"("target": "y", "columns": ["size"], "standardize": false, "test_fraction": 0)").train, 2),
            std::vector<float>{5});
}

TEST_F(CsvTest, MissingValuesFollowThePolicy) {
  write("size,colour,y\n1,red,1\n,red,2\n7,NA,3\n1,blue,4\n");
  const std::string rest = R"("target": "y", "standardize": false, "test_fraction": 0)";
  EXPECT_TRUE(contains(error_message<DataError>([&] { data(rest); }), "line 3, column \"size\": a value is missing"));
  const DataSplits by_mean = data(rest + R"(, "missing": "mean")");
  EXPECT_EQ(x(by_mean.train, 1), (std::vector<float>{3, 0, 1}));
  EXPECT_EQ(x(by_mean.train, 2), (std::vector<float>{7, 0, 1})) << "of categories the most frequent one";
  EXPECT_EQ(x(data(rest + R"(, "missing": "most_frequent")").train, 1), (std::vector<float>{1, 0, 1}));
  write("size,colour,y\n1,red,\n");
  EXPECT_TRUE(contains(error_message<DataError>([&] { data(rest + R"(, "missing": "mean")"); }),
                       "line 2, column \"y\": \"\" is no number"));
}

TEST_F(CsvTest, TargetsAreNumbersOrClasses) {
  write("a,y\n1,0\n2,1\n3,1\n");
  const std::string rest = R"("target": "y", "test_fraction": 0)";
  EXPECT_EQ(data(rest).train->classes(), 0);
  Random random(0, 0);
  const DataSplits numbers = data(rest);
  const Tensor target = table(numbers.train).read(1, random)[1].second;
  EXPECT_EQ(target.dtype(), DType::f32);
  EXPECT_EQ(target.data<const float>()[0], 1);
  EXPECT_EQ(data(rest + R"(, "target_type": "category")").train->class_names(), (std::vector<std::string>{"0", "1"}));
  EXPECT_TRUE(
      contains(error_message<DataError>([&] { data(rest + R"(, "target_type": "category", "classes": ["0"])"); }),
               "line 3, column \"y\": \"1\" is none of the 1 classes"));
  EXPECT_TRUE(contains(
      error_message<ConfigError>([&] { data(rest + R"(, "target_type": "category", "classes": ["0", "1", "0"])"); }),
      "/data/classes: \"0\" is there twice"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { data(R"("target": "z")"); }), "has no column \"z\""));
}

TEST_F(CsvTest, NumbersFarFromZeroKeepWhatTheyDifferBy) {
  constexpr int rows = 101;  // of mean 1.7e12 + 50 and variance (101^2 - 1) / 12
  std::string text = "time,constant,y\n";
  for (int i = 0; i < rows; ++i) text += join_text(1'700'000'000'000 + i, ",0.1,", i, "\n");
  write(text);
  const Json node = parse_json(
      join_text(R"({"type": "csv", "path": ")", path, R"(", "target": "y", "test_fraction": 0, "missing": "mean"})"),
      "t");
  const auto component = datasets().parse(node);
  const DataSplits trained = make_data(component);
  const TableFacts& facts = table(trained.train).facts();
  const double deviation = std::sqrt(850.0);
  EXPECT_EQ(facts.columns[0].mean, 1'700'000'000'050);
  EXPECT_NEAR(facts.columns[0].deviation, deviation, 1e-12);
  EXPECT_EQ(facts.columns[1].mean, 0.1);
  EXPECT_EQ(facts.columns[1].deviation, 1) << "equal values have none";
  for (int i = 0; i < rows; ++i) {
    EXPECT_FLOAT_EQ(x(trained.train, i)[0], static_cast<float>((i - 50) / deviation));
    EXPECT_EQ(x(trained.train, i)[1], 0);
  }
  // Rows to predict, by what a checkpoint keeps.
  const auto kept = std::make_shared<const TableFacts>(table_facts_of(parse_json(to_text(to_json(facts)), "t")));
  EXPECT_EQ(*kept, facts);
  write(text + ",,0\n", "new.csv");
  const TablePointer predicted = open_rows(component, kept, folder / "new.csv", true);
  for (int i = 0; i < rows; ++i) EXPECT_EQ(x(predicted, i), x(trained.train, i));
  EXPECT_EQ(x(predicted, rows), (std::vector<float>{0, 0})) << "the mean";
}

TEST_F(CsvTest, InputsBeyondF32AreRefused) {
  write("a,y\n1e-30,1\n3e-30,2\n");
  write("a,y\n1e20,1\n", "test.csv");
  const std::string rest = R"("target": "y", "test": ")" + (folder / "test.csv").string() + "\"";
  const std::string fault = error_message<DataError>([&] { data(rest); });
  EXPECT_TRUE(contains(fault, "test.csv: column \"a\" has the value 1e+20, which is beyond f32")) << fault;
  EXPECT_NO_THROW(data(rest + R"(, "standardize": false)"));
}

TEST_F(CsvTest, KeysThatContradictAreRefused) {
  write("a,b,y\n1,2,3\n4,5,6\n7,8,9\n");
  const auto message = [&](const char* more) {
    return error_message<ConfigError>([&] { data(join_text(R"("target": "y", )", more)); });
  };
  EXPECT_TRUE(contains(message(R"("columns": ["a", "a"])"), "/data/columns: \"a\" is named twice"));
  EXPECT_TRUE(contains(message(R"("columns": ["a", "b"], "ignore": ["a"])"), "/data/ignore: \"a\" is among"));
  EXPECT_TRUE(contains(message(R"("categories": ["y"])"), "/data/categories: \"y\" is the target"));
  EXPECT_TRUE(contains(message(R"("columns": ["y"])"), "\"y\" is the target"));
}

TEST_F(CsvTest, HasNoFieldsOfImages) {
  write("a,y\n1,1\n2,2\n");
  for (const char* type : {R"("csv", "target": "y")", R"("arrays", "x": "x", "y": "y")"})
    for (const char* key : {"augment", "normalize"}) {
      const std::string fault = error_message<ConfigError>([&] {
        datasets().parse(
            parse_json(join_text(R"({"type": )", type, R"(, "path": "a.csv", ")", key, R"(": {}})"), "run.json"));
      });
      EXPECT_TRUE(contains(fault, join_text("/", key, ": unknown key \"", key, "\""))) << fault;
      EXPECT_TRUE(contains(fault, " standardize, ")) << fault;
    }
}

TEST_F(CsvTest, SplitsAreDrawnBySeed) {
  std::string text = "a,y\n";
  for (int i = 0; i < 100; ++i) text += join_text(i, ",", i, "\n");
  write(text);
  const auto rows = [&](const DatasetPointer& part) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < part->size(); ++i) all.push_back(x(part, i)[0]);
    return all;
  };
  const std::string rest = R"("target": "y", "standardize": false, "test_fraction": 0.2, "valid_fraction": 0.1)";
  const DataSplits splits = data(rest);
  EXPECT_EQ(splits.train->size(), 70);
  EXPECT_EQ(splits.valid->size(), 10);
  EXPECT_EQ(splits.test->size(), 20);
  std::vector<float> all = rows(splits.train);
  for (const auto& part : {splits.valid, splits.test})
    for (const float value : rows(part)) all.push_back(value);
  std::sort(all.begin(), all.end());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], static_cast<float>(i));
  EXPECT_EQ(rows(data(rest).test), rows(splits.test));
  EXPECT_NE(rows(data(rest + R"(, "split_seed": 1)").test), rows(splits.test));
  EXPECT_EQ(fingerprint(data(rest)), fingerprint(splits));
  EXPECT_NE(fingerprint(data(rest + R"(, "split_seed": 1)")), fingerprint(splits));
}

TEST_F(CsvTest, RowsOfOtherFilesBecomeTheSameInputs) {
  write("size,colour,y\n1,red,a\n3,blue,b\n5,red,a\n");
  const Json node = parse_json(
      join_text(R"({"type": "csv", "path": ")", path, R"(", "target": "y", "test_fraction": 0, "missing": "mean"})"),
      "t");
  const auto component = datasets().parse(node);
  const DataSplits trained = make_data(component);
  const auto facts = std::make_shared<const TableFacts>(table_facts_of(to_json(table(trained.train).facts())));
  EXPECT_EQ(*facts, table(trained.train).facts());
  write("colour,extra,size\nred,x,5\n,x,3\n", "new.csv");
  const TablePointer rows = open_rows(component, facts, folder / "new.csv", true);
  EXPECT_FALSE(rows->has_targets());
  EXPECT_EQ(x(rows, 0), x(trained.train, 2));
  EXPECT_EQ(x(rows, 1), (std::vector<float>{0, 0, 1}));
  write("colour\nred\n", "new.csv");
  // What stands in the target's column is nothing to a prediction.
  write("size,colour,y\n5,red,\n", "unknown.csv");
  EXPECT_EQ(x(open_rows(component, facts, folder / "unknown.csv", false), 0), x(trained.train, 2));
  EXPECT_TRUE(contains(error_message<DataError>([&] { open_rows(component, facts, folder / "unknown.csv", true); }),
                       "is none of the 2 classes"));
  EXPECT_TRUE(contains(error_message<DataError>([&] { open_rows(component, facts, folder / "new.csv", true); }),
                       "has no column \"size\"; it has \"colour\""));
  // The training's file may be another one by now: what was learned stays.
  DataFacts all = facts_of(trained);
  EXPECT_EQ(all.kind, "table");
  write("size,colour,y\n100,red,a\n300,blue,b\n");
  EXPECT_EQ(table(data_as_trained(component, all).train).facts(), *facts);
  EXPECT_EQ(described_data(component, all).train->size(), 0);
  EXPECT_TRUE(contains(error_message<DataError>([&] { evaluation_data(component, all, folder / "new.csv"); }), "size"));
  EXPECT_EQ(evaluation_data(component, all, path).test->size(), 2);
}

/// The bytes of a .npy file.
template <class T>
Bytes npy(const std::string& descr, const std::string& shape, const std::vector<T>& values,
          const char* order = "False") {
  std::string header = join_text("{'descr': '", descr, "', 'fortran_order': ", order, ", 'shape': ", shape, ", }");
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string text = "\x93NUMPY";
  text += std::string("\x01\x00", 2) + static_cast<char>(header.size() & 255) + static_cast<char>(header.size() >> 8) +
          header;
  Bytes bytes(text.begin(), text.end());
  const std::size_t at = bytes.size();
  bytes.resize(at + values.size() * sizeof(T));
  std::memcpy(bytes.data() + at, values.data(), values.size() * sizeof(T));
  return bytes;
}

TEST(Npy, ReadsTypesAndShapes) {
  const NumpyArray floats = parse_npy(npy<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, -0.5f}), "t");
  EXPECT_EQ(floats.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(floats.values, (std::vector<double>{1, 2, 3, 4, 5, -0.5}));
  EXPECT_FALSE(floats.is_integer);
  EXPECT_EQ(parse_npy(npy<std::int64_t>("<i8", "(2,)", {-7, 1 << 30}), "t").values, (std::vector<double>{-7, 1 << 30}));
  EXPECT_TRUE(parse_npy(npy<std::uint8_t>("|b1", "(2,)", {0, 1}), "t").is_integer);
  EXPECT_EQ(parse_npy(npy<std::uint8_t>(">i2", "(2,)", {1, 0, 0xff, 0xfe}), "t").values,
            (std::vector<double>{256, -2}));
  // Halves: 1, -2, the smallest, the largest, infinity.
  const auto halves = parse_npy(npy<std::uint16_t>("<f2", "(5,)", {0x3c00, 0xc000, 1, 0x7bff, 0x7c00}), "t").values;
  EXPECT_EQ(halves, (std::vector<double>{1, -2, std::ldexp(1.0, -24), 65504, HUGE_VAL}));
}

TEST(Npy, RefusesWhatIsNone) {
  const auto fault = [](const Bytes& bytes) { return error_message<DataError>([&] { parse_npy(bytes, "t.npy"); }); };
  const Bytes whole = npy<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, 6});
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_TRUE(contains(fault(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length))), "t.npy: "))
        << length;
  EXPECT_TRUE(contains(fault(npy<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, 6}, "True")), "Fortran"));
  for (const char* type : {"<U1", "<U4", "<U16", "|S3", "|O", "|O8", "<c8", "<c16", "<M8[ns]", "|V12", "<f16", "<i3"}) {
    const std::string found = fault(npy<float>(type, "(1,)", {1, 2, 3, 4}));
    EXPECT_TRUE(contains(found, join_text("elements of the type '", type + 1, "', which is not read"))) << found;
    const bool is_text = type[1] == 'U' || type[1] == 'S' || type[1] == 'O';
    EXPECT_TRUE(contains(found, is_text ? "data.classes" : "astype")) << found;
  }
  EXPECT_TRUE(contains(fault(npy<float>("<f4", "(99999999999, 99999999999)", {1})), "cannot fill"));
  EXPECT_TRUE(contains(fault(npy<float>("<f4", "(99999999999999999999,)", {1})), "beyond any file"));
  EXPECT_TRUE(contains(fault(npy<float>("<f4", "()", {1})), "single number"));
  EXPECT_TRUE(contains(fault(npy<float>("<f4", "(x,)", {1})), "a shape that is none"));
  Random random(4, 0);
  for (int trial = 0; trial < 2000; ++trial) {
    Bytes damaged = whole;
    damaged[random.below(128)] ^= static_cast<std::uint8_t>(1 << random.below(8));
    try {
      parse_npy(damaged, "t.npy");
    } catch (const DataError&) {
    }
  }
}

struct ArraysTest : testing::Test {
  test::TempDir folder;
  std::vector<double> x = std::vector<double>(60 * 6, 1.0), y = std::vector<double>(60, 1.0);
  std::string shape = "(60, 2, 3)";

  DataSplits data(const std::string& more = "") const {
    folder.write("x.npy", npy("<f8", shape, x));
    folder.write("y.npy", npy("<f8", "(60,)", y));
    return make_data(
        parse_json(join_text(R"({"type": "arrays", "path": ")", folder.path().string(),
                             R"(", "x": "x.npy", "y": "y.npy", "test_fraction": 0.5, "workers": 0)", more, "}"),
                   "t"));
  }
  std::string fault(const std::string& more = "") const {
    return error_message<DataError>([&] { data(more); });
  }
  std::string place(const std::string& file) const { return (folder / file).string() + ": row "; }
};

TEST_F(ArraysTest, FaultsNameTheRowOfTheFile) {
  for (const std::size_t row : {0u, 7u, 33u, 40u, 59u}) {
    x[row * 6 + 4] = std::nan("");
    EXPECT_TRUE(contains(fault(), join_text(place("x.npy"), row, ", place [1, 1], counted from 0, is NaN"))) << fault();
    EXPECT_TRUE(contains(fault(), "data.missing")) << fault();
    EXPECT_NO_THROW(data(R"(, "missing": "mean")"));
    x[row * 6 + 4] = 1;
    y[row] = 3;
    EXPECT_TRUE(contains(fault(R"(, "target_type": "category", "classes": ["a", "b"])"),
                         join_text(place("y.npy"), row, ", counted from 0, is 3, and the labels of 2 classes")));
    y[row] = 1;
  }
  shape = "(60, 6)";
  x[40 * 6 + 4] = std::nan("");
  EXPECT_TRUE(contains(fault(), join_text(place("x.npy"), 40, ", place 4, counted from 0, is NaN"))) << fault();
}

TEST_F(ArraysTest, RefusesWhatIsOutsideTheRangeOfF32) {
  for (const double value : {HUGE_VAL, -HUGE_VAL, 1e39, -1e300}) {
    x[33 * 6 + 2] = value;
    for (const char* missing : {"", R"(, "missing": "mean")"})
      EXPECT_TRUE(contains(fault(missing), join_text(place("x.npy"), 33, ", place [0, 2], counted from 0, is ", value,
                                                     ", which is outside the range of f32")))
          << fault(missing);
    x[33 * 6 + 2] = 3e38;
    y[7] = value;
    EXPECT_TRUE(contains(
        fault(), join_text(place("y.npy"), 7, ", counted from 0, is ", value, ", which is outside the range of f32")))
        << fault();
    EXPECT_TRUE(contains(fault(R"(, "target_type": "category")"), "y.npy")) << fault();
    y[7] = 1;
  }
  y[7] = std::nan("");
  EXPECT_TRUE(contains(fault(), join_text(place("y.npy"), 7, ", counted from 0, is NaN"))) << fault();
  EXPECT_TRUE(contains(fault(R"(, "target_type": "category")"), "y.npy")) << fault();
}

TEST_F(ArraysTest, NumbersFarFromZeroKeepWhatTheyDifferBy) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.7e12 + static_cast<double>(i);
  const DataSplits splits = data(R"(, "missing": "mean")");
  const auto& table = dynamic_cast<const TableDataset&>(*splits.train);
  const Column& column = table.facts().columns[0];
  Random random(0, 0);
  for (std::int64_t row = 0; row < table.size(); ++row) {
    const Tensor sample = table.read(row, random)[0].second;
    // Places follow each other in the last axis, 3 values apart in the one before.
    EXPECT_NEAR(sample.data<const float>()[3] - sample.data<const float>()[0], 3 / column.deviation, 1e-6);
    EXPECT_EQ(
        sample.data<const float>()[0],
        static_cast<float>((table.rows().inputs[static_cast<std::size_t>(row) * 6] - column.mean) / column.deviation));
  }
}

TEST_F(ArraysTest, LabelsAreNumbersFromZero) {
  for (const double label : {-1.0, -5.0, 1e6}) {
    y.assign(60, label);
    EXPECT_TRUE(contains(fault(R"(, "target_type": "category")"), join_text("y.npy: the greatest label is ", label)));
  }
}

TEST_F(ArraysTest, ColumnsWithoutAnyValueAreNamed) {
  for (std::size_t row = 0; row < 60; ++row) x[row * 6 + 2] = x[row * 6 + 5] = std::nan("");
  for (const char* missing : {"most_frequent", "mean"})
    EXPECT_TRUE(contains(fault(join_text(R"(, "missing": ")", missing, '"')), "x.npy: place 2 of the last axis"));
}

TEST(Arrays, AreSplitsOfRowsWithClassesOrNumbers) {
  const test::TempDir folder;
  std::vector<float> x;
  std::vector<std::int32_t> y;
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 6; ++k) x.push_back(static_cast<float>(i * 10 + k));
    y.push_back(i % 3);
  }
  folder.write("x.npy", npy("<f4", "(20, 2, 3)", x));
  folder.write("y.npy", npy("<i4", "(20,)", y));
  const auto data = [&](const std::string& more) {
    return make_data(parse_json(join_text(R"({"type": "arrays", "path": ")", folder.path().string(),
                                          R"(", "x": "x.npy", "y": "y.npy", "workers": 0)", more, "}"),
                                "t"));
  };
  const DataSplits classes = data("");
  EXPECT_EQ(classes.train->size(), 18);
  EXPECT_EQ(classes.test->size(), 2);
  EXPECT_EQ(classes.train->class_names(), (std::vector<std::string>{"0", "1", "2"}));
  const auto& table = dynamic_cast<const TableDataset&>(*classes.train);
  EXPECT_EQ(table.facts().columns.size(), 3u) << "one for each place of the last axis";
  Random random(0, 0);
  EXPECT_EQ(table.read(0, random)[0].second.shape(), Shape({2, 3}));
  Loader loader = classes.eval_loader(classes.train, 18);
  const Batch batch = loader.next();
  double sum = 0;
  for (std::int64_t i = 0; i < batch["x"].size(); i += 3) sum += batch["x"].data<const float>()[i];
  EXPECT_NEAR(sum, 0, 1e-3) << "standardised over rows and places";
  const DataSplits numbers = data(R"(, "target_type": "number")");
  EXPECT_EQ(numbers.train->classes(), 0);
  EXPECT_TRUE(contains(error_message<DataError>([&] { data(R"(, "classes": ["a", "b"])"); }),
                       "is 2, and the labels of 2 classes are 0 to 1"));
  folder.write("y.npy", npy("<i4", "(19,)", std::vector<std::int32_t>(19)));
  EXPECT_TRUE(contains(error_message<DataError>([&] { data(""); }), "20 rows of inputs and 19 of targets"));
}

}  // namespace
}  // namespace hearth::data::table_test
