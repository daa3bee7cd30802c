// SPDX-License-Identifier: Apache-2.0
#include "data/batch.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/error_message.h"

namespace hearth::data::batch_test {
namespace {

Batch pictures(std::int64_t rows) {
  Batch batch;
  batch.set("images", Tensor::zeros({rows, 4, 4, 1}));
  batch.set("masks", Tensor::zeros({rows, 4, 4}, DType::i64));
  batch.set("mix", Tensor::zeros({5}), Batch::Axis::shared);
  return batch;
}

TEST(Batch, KeepsNamesInOrder) {
  Batch batch = pictures(3);
  EXPECT_EQ(batch.rows(), 3);
  EXPECT_EQ(batch.count(), 3);
  batch.set("images", Tensor::full({3, 2, 2, 1}, 7));
  ASSERT_EQ(batch.tensors().size(), 3u);
  EXPECT_EQ(batch.tensors()[0].name, "images");
  EXPECT_EQ(batch.tensors()[2].axis, Batch::Axis::shared);
  EXPECT_EQ(batch["images"].to_doubles(), std::vector<double>(12, 7.0));
  batch.counted = 2;
  EXPECT_EQ(batch.count(), 2);
}

TEST(Batch, SaysWhatItHas) {
  const Batch batch = pictures(3);
  EXPECT_TRUE(batch.has("masks"));
  EXPECT_FALSE(batch.find("labels").defined());
  EXPECT_EQ(test::error_message<UsageError>([&] { (void)batch["labels"]; }),
            "batch: there is no tensor \"labels\"; it has images, masks, mix");
  EXPECT_EQ(test::error_message<UsageError>([] { (void)Batch()["labels"]; }),
            "batch: there is no tensor \"labels\"; it has none");
}

TEST(Batch, RefusesWhatIsNoTensorOfRows) {
  Batch batch;
  EXPECT_EQ(batch.rows(), 0);
  EXPECT_THROW(batch.set("", Tensor::zeros({3})), UsageError);
  EXPECT_THROW(batch.set("images", Tensor()), UsageError);
  EXPECT_THROW(batch.set("weight", Tensor::zeros({})), ShapeError);
  batch.set("weight", Tensor::zeros({}), Batch::Axis::shared);
  EXPECT_EQ(batch.rows(), 0);
}

TEST(Batch, IsComparedWithAndWithoutRows) {
  const Batch three = pictures(3), five = pictures(5);
  EXPECT_TRUE(same_but_for_rows(three, five));
  EXPECT_FALSE(same_shapes(three, five));
  EXPECT_TRUE(same_shapes(three, pictures(3)));
  Batch other = pictures(3);
  other.set("mix", Tensor::zeros({6}), Batch::Axis::shared);
  EXPECT_FALSE(same_but_for_rows(three, other));
  other = pictures(3);
  other.set("masks", Tensor::zeros({3, 4, 4}, DType::i32));
  EXPECT_FALSE(same_but_for_rows(three, other));
  other = pictures(3);
  other.set("labels", Tensor::zeros({3}));
  EXPECT_FALSE(same_but_for_rows(three, other));
}

Batch with_boxes() {
  Batch batch;
  batch.set("images", Tensor::of<std::int64_t>({3, 1}, {10, 11, 12}));
  batch.set("box_counts", Tensor::of<std::int64_t>({3}, {2, 0, 1}));
  batch.set_ragged("boxes", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6}), "box_counts");
  batch.set("mix", Tensor::zeros({5}), Batch::Axis::shared);
  batch.samples = {7, 8, 9};
  return batch;
}

TEST(Batch, RaggedTensorsAreCounted) {
  Batch batch = with_boxes();
  EXPECT_EQ(batch.rows(), 3);
  EXPECT_EQ(batch.tensors()[2].axis, Batch::Axis::ragged);
  EXPECT_EQ(batch.tensors()[2].counts, "box_counts");
  EXPECT_THROW(batch.set_ragged("boxes", Tensor::zeros({3, 2}), "counts"), UsageError);
  EXPECT_THROW(batch.set_ragged("boxes", Tensor::zeros({3, 2}), "mix"), UsageError);
  EXPECT_THROW(batch.set_ragged("boxes", Tensor::zeros({3, 2}), "images"), UsageError);
  EXPECT_EQ(test::error_message<ShapeError>([&] {
              batch.set_ragged("boxes", Tensor::zeros({4, 2}), "box_counts");
            }),
            "batch: \"boxes\" has 4 entries, and \"box_counts\" adds up to 3");
  Batch other = with_boxes();
  other.set("box_counts", Tensor::of<std::int64_t>({3}, {1, 0, 0}));
  other.set_ragged("boxes", Tensor::zeros({1, 2}), "box_counts");
  EXPECT_TRUE(same_but_for_rows(batch, other));
  EXPECT_FALSE(same_shapes(batch, other));
  other.set("boxes", Tensor::zeros({3, 2}));
  EXPECT_FALSE(same_but_for_rows(batch, other)) << "rows are not entries";
}

TEST(Batch, SpareEntriesBelongToNoRow) {
  const Batch padded = with_spare_entries(with_boxes());
  ASSERT_EQ(padded["boxes"].shape(), (Shape{16, 2}));
  std::vector<double> wanted{1, 2, 3, 4, 5, 6};
  wanted.resize(32);
  EXPECT_EQ(padded["boxes"].to_doubles(), wanted);
  EXPECT_EQ(padded["images"].shape(), (Shape{3, 1}));
  EXPECT_EQ(padded.gather({0, 1, 2})["boxes"].to_doubles(), with_boxes()["boxes"].to_doubles());
  Batch many;
  many.set("box_counts", Tensor::of<std::int64_t>({1}, {17}));
  many.set_ragged("boxes", Tensor::zeros({17, 2}), "box_counts");
  EXPECT_EQ(with_spare_entries(many)["boxes"].shape(), (Shape{32, 2}));
}

TEST(Batch, GathersRowsWithTheirEntries) {
  const Batch batch = with_boxes();
  const Batch picked = batch.gather({2, 0, 1, 2});
  EXPECT_EQ(picked["images"].to_doubles(), (std::vector<double>{12, 10, 11, 12}));
  EXPECT_EQ(picked["box_counts"].to_doubles(), (std::vector<double>{1, 2, 0, 1}));
  EXPECT_EQ(picked["boxes"].to_doubles(), (std::vector<double>{5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(picked["mix"].shape(), (Shape{5}));
  EXPECT_EQ(picked.samples, (std::vector<std::int64_t>{9, 7, 8, 9}));
  EXPECT_EQ(batch.gather({1})["boxes"].shape(), (Shape{0, 2}));
  EXPECT_EQ(batch.gather({})["boxes"].shape(), (Shape{0, 2}));
  EXPECT_THROW((void)batch.gather({3}), IndexError);
  EXPECT_THROW((void)batch.gather({-1}), IndexError);
}

TEST(Batch, MapsItsTensors) {
  Batch batch = pictures(2);
  batch.counted = 1;
  const Batch doubled = batch.map([](const Batch::Named& one) { return one.tensor.to(DType::f64); });
  EXPECT_EQ(doubled["masks"].dtype(), DType::f64);
  EXPECT_EQ(doubled.count(), 1);
  EXPECT_EQ(batch["masks"].dtype(), DType::i64);
  EXPECT_TRUE(batch.to(Device{})["images"].same_storage(batch["images"]));
}

}  // namespace
}  // namespace hearth::data::batch_test
