// SPDX-License-Identifier: Apache-2.0
#include "ops/onednn/onednn.h"

#include <gtest/gtest.h>

#include "ops/onednn/library.h"

namespace hearth::cpu::onednn_test {
namespace {

TEST(DnnFacade, NamesTheLibrary) {
  if (dnn::available()) {
    EXPECT_NE(dnn::library().find("oneDNN"), std::string::npos);
    return;
  }
  EXPECT_EQ(dnn::library(), "none");
  EXPECT_TRUE(dnn::plans().empty());
}

#if HEARTH_HAS_DNNL
TEST(DnnRegistry, DropsThePlanUsedLeastRecently) {
  static dnn::Registry<int, dnn::LibraryPlan> registry([](const int& key) { return std::to_string(key); });
  int made = 0;
  const auto get = [&](int key) {
    return registry.get(key, [&] {
      ++made;
      return std::make_shared<const dnn::LibraryPlan>();
    });
  };
  constexpr int most = decltype(registry)::max_plans;
  const auto first = get(0);
  for (int key = 1; key < most; ++key) (void)get(key);
  EXPECT_EQ(get(0), first);
  (void)get(most);  // in the place of 1
  EXPECT_EQ(get(0), first);
  EXPECT_EQ(made, most + 1);
  (void)get(1);
  EXPECT_EQ(made, most + 2);
  std::vector<dnn::PlanInfo> kept;
  registry.list(kept);
  EXPECT_EQ(kept.size(), static_cast<std::size_t>(most));
  registry.clear();
}
#endif

}  // namespace
}  // namespace hearth::cpu::onednn_test
