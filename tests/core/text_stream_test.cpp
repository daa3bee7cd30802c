// SPDX-License-Identifier: Apache-2.0
// Strings are the same in every locale of the host program.
#include "core/text_stream.h"

#include <gtest/gtest.h>

#include <sstream>

#include "core/io/state.h"
#include "core/shape.h"
#include "tests/support/error_message.h"
#include "tests/support/grouping_locale.h"

namespace hearth::text_stream_test {
namespace {

TEST(TextStream, TakesNoNoticeOfTheGlobalLocale) {
  const test::GroupingLocale elsewhere;
  std::ostringstream theirs;
  theirs << 1234.5;
  ASSERT_EQ(theirs.str(), "1.234,5");
  EXPECT_EQ(join_text(1234567, " ", 1234.5, " ", Shape{2000, 3}), "1234567 1234.5 [2000, 3]");
  const std::string message = test::error_message<ShapeError>([] { (void)Shape{3}.with(0, -1000); });
  EXPECT_PRED2(test::contains, message, "-1000");
}

TEST(TextStream, HashesOfStateAreThoseOfOtherMachines) {
  Tensor values = Tensor::full({2000}, 1);
  State state;
  state.add("values", &values);
  const std::string here = state.hash();
  const test::GroupingLocale elsewhere;
  EXPECT_EQ(state.hash(), here);
}

}  // namespace
}  // namespace hearth::text_stream_test
