// SPDX-License-Identifier: Apache-2.0
#include "train/step/sum_choice.h"

#include <gtest/gtest.h>

#include <deque>

#include "autograd/grad_state.h"
#include "core/error.h"
#include "tests/dist/groups.h"
#include "tests/support/error_message.h"
#include "tests/support/ranks.h"

namespace hearth::train::sum_choice_test {
namespace {

using dist::Route;

/// Parameters of 4 MiB.
struct Model {
  Model() {
    std::vector<NamedTensor> named;
    for (int i = 0; i < 16; ++i) tensors.push_back(requires_grad(Tensor::full({1 << 16}, 1)));
    for (Tensor& tensor : tensors) named.push_back({"p" + std::to_string(named.size()), &tensor});
    flat = std::make_unique<FlatParameters>(named);
  }
  std::deque<Tensor> tensors;
  std::unique_ptr<FlatParameters> flat;
};

dist::PassTimes pass_of(const dist::DataParallel& parallel) {
  const std::size_t n = parallel.parameters().entries().size();
  dist::PassTimes times{.compute = 1, .arrivals = std::vector<double>(n)};
  for (std::size_t i = 0; i < n; ++i) times.arrivals[i] = static_cast<double>(n - i) / static_cast<double>(n);
  times.stages.assign(parallel.buckets().size(), {0});
  times.ends.assign(parallel.buckets().size(), 0);
  return times;
}

/// 0.3 s for the gradients by a tree, more by other routes.
const dist::SumCosts a_tree_is_best{
    .routes = {{Route::hierarchical, {1e-4, 1e-7}}, {Route::direct, {1e-4, 2e-7}}, {Route::tree, {1e-4, 7e-8}}}};

void on_ranks(int size, const std::function<void(Collective&)>& f) {
  for (const std::string& failure :
       test::failures_of_ranks(dist::groups_of("loopback", size, {.hosts = dist::hosts_with(2, size)}), f))
    EXPECT_EQ(failure, "");
}

TEST(SumChoice, AllRanksTakeTheSameAndAResumedRunKeepsIt) {
  on_ranks(4, [](Collective& group) {
    Model model;
    dist::DataParallel parallel(group, *model.flat);
    SumChoice choice(parallel, {.any_route = true, .any_size = true});
    EXPECT_EQ(choice.why_none(), "");
    EXPECT_FALSE(choice.is_made());
    choice.choose(a_tree_is_best, pass_of(parallel));
    EXPECT_EQ(dist::routed(group)->current_route(), Route::tree);
    const Json& made = choice.made();
    EXPECT_EQ(made.at("route").as_string(), "tree");
    const double size = made.at("bucket_mb").as_number();
    EXPECT_LT(size, 10) << "what is exposed is the last bucket";
    EXPECT_EQ(parallel.options().bucket_mb, size);
    EXPECT_EQ(made.at("ranks").as_integer(), 4);
    EXPECT_EQ(made.at("hosts").as_integer(), 2);
    EXPECT_TRUE(test::contains(choice.text(), join_text("route tree, buckets of ", size, " MiB: steps wait ")))
        << choice.text();
    EXPECT_TRUE(test::contains(choice.text(), "hierarchical ")) << choice.text();
    EXPECT_FALSE(choice.after_step()) << "it chooses once";

    dist::routed(group)->use_route(Route::hierarchical);
    Model again;
    dist::DataParallel resumed(group, *again.flat);
    SumChoice kept(resumed, {.any_route = true, .any_size = true});
    kept.restore(&made);
    EXPECT_EQ(dist::routed(group)->current_route(), Route::hierarchical) << "the ranks have not compared checkpoints";
    kept.resume();
    EXPECT_EQ(dist::routed(group)->current_route(), Route::tree);
    EXPECT_EQ(resumed.options().bucket_mb, size);
    EXPECT_EQ(kept.text(), join_text("route tree, buckets of ", size, " MiB, as before"));
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(kept.after_step());
    EXPECT_EQ(to_text(kept.made()), to_text(made));
  });
}

TEST(SumChoice, MeasuresAfterTheFirstSteps) {
  on_ranks(4, [](Collective& group) {
    Model model;
    dist::DataParallel parallel(group, *model.flat);
    SumChoice choice(parallel, {.any_route = true});
    for (int step = 1; step <= 4; ++step) {
      parallel.overlap_next(true);
      parallel.reduce();
      EXPECT_EQ(choice.after_step(), step == 3) << step;
    }
    EXPECT_EQ(choice.forecasts().size(), 3U) << "direct, tree, hierarchical";
    EXPECT_EQ(choice.made().at("bucket_mb").as_number(), 10) << "it is given";
  });
}

TEST(SumChoice, IsMadeAnewWhereRanksOrConfigurationAreOthers) {
  on_ranks(4, [](Collective& group) {
    Json made = Json::object().set("route", "tree").set("bucket_mb", 10).set("ranks", 4).set("hosts", 2);
    Model model;
    dist::DataParallel parallel(group, *model.flat);
    const auto is_taken = [&](const Json* noted, const SumChoiceOptions& options) {
      dist::routed(group)->use_route(Route::hierarchical);
      SumChoice choice(parallel, options);
      choice.restore(noted);
      choice.resume();
      EXPECT_EQ(choice.is_made(), dist::routed(group)->current_route() == Route::tree);
      return choice.is_made();
    };
    EXPECT_TRUE(is_taken(&made, {.any_route = true}));
    EXPECT_FALSE(is_taken(nullptr, {.any_route = true}));
    EXPECT_FALSE(is_taken(&made, {})) << "the configuration gives both";
    made.set("ranks", 8);
    EXPECT_FALSE(is_taken(&made, {.any_route = true}));
    made.set("ranks", 4).set("bucket_mb", 25);
    EXPECT_FALSE(is_taken(&made, {.any_route = true})) << "another size is given now";
    made.set("bucket_mb", 10).set("route", "sideways");
    EXPECT_PRED2(test::contains, test::error_message<FileError>([&] { (void)is_taken(&made, {.any_route = true}); }),
                 "\"sideways\"");
    made.set("route", 3);
    EXPECT_THROW((void)is_taken(&made, {.any_route = true}), FileError);
    made = Json::array();
    EXPECT_THROW((void)is_taken(&made, {.any_route = true}), FileError);
  });
}

TEST(SumChoice, SaysWhyThereIsNothingToChoose) {
  const auto why = [](Collective& group, const SumChoiceOptions& options, bool overlap = true) {
    Model model;
    dist::DataParallel parallel(group, *model.flat, {.overlap = overlap});
    return SumChoice(parallel, options).why_none();
  };
  on_ranks(1, [&](Collective& group) { EXPECT_EQ(why(group, {true, true}), "there is one rank"); });
  on_ranks(2, [&](Collective& group) {
    // Two ranks of one host.
    EXPECT_EQ(why(group, {false, false}), "dist.route and dist.bucket_mb are given");
    EXPECT_EQ(why(group, {true, false}), "no other choice could be faster");
    EXPECT_EQ(why(group, {true, true}, false), "no other choice could be faster");
    EXPECT_EQ(why(group, {true, true}), "");
  });
}

}  // namespace
}  // namespace hearth::train::sum_choice_test
