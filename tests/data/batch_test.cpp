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
