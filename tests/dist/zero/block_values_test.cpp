// SPDX-License-Identifier: Apache-2.0
// Values that ranks gather while ops use them.
#include "autograd/block_values.h"

#include <gtest/gtest.h>

#include <functional>

#include "autograd/backward.h"
#include "autograd/parameters.h"
#include "autograd/record.h"
#include "core/error.h"
#include "dist/data_parallel.h"
#include "tests/dist/groups.h"
#include "tests/support/error_message.h"

namespace hearth::dist::block_values_test {
namespace {

using test::contains;
using test::error_message;

void run_ranks(int size, const std::function<void(Collective&)>& f) {
  for (const std::string& failure : test::failures_of_ranks(loopback_groups(size), f)) EXPECT_EQ(failure, "");
}

/// y = x + sum of w^2, an op of the test's own: dist knows no other.
struct Layer {
  static constexpr OpInfo info{.name = "layer_of_test"};
  struct Saved {
    SavedTensor w;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& w) const {
    saved.w = w;
    double sum = x.item();
    const float* const values = w.data<const float>();
    for (std::int64_t i = 0; i < w.size(); ++i) sum += static_cast<double>(values[i]) * values[i];
    return Tensor::full({1}, sum);
  }
  std::array<Tensor, 2> backward(const Saved& saved, Tensor dy, const NeedsGrad&) const {
    const Tensor& w = saved.w.get();
    const Tensor dw = Tensor::empty(w.shape());
    for (std::int64_t i = 0; i < w.size(); ++i)
      dw.data<float>()[i] = static_cast<float>(2 * dy.item()) * w.data<const float>()[i];
    return {dy, dw};
  }
};

constexpr std::int64_t layers = 6, size = 40000;

struct Net {
  explicit Net(Collective& group) {
    weights.reserve(layers);
    std::vector<NamedTensor> named;
    for (std::int64_t i = 0; i < layers; ++i) {
      weights.push_back(Tensor::full({size}, static_cast<double>(i + 1)));
      named.push_back({"w" + std::to_string(i), &weights.back()});
    }
    flat = std::make_unique<FlatParameters>(named, std::nullopt, Division{&group, size, true});
    parallel = std::make_unique<DataParallel>(group, *flat, DataParallelOptions{.zero = 3});
  }
  Tensor loss() const {
    Tensor x = Tensor::full({1}, 0);
    for (const Tensor& w : weights) x = record(Layer{}, x, w);
    return x;
  }
  std::vector<Tensor> weights;
  std::unique_ptr<FlatParameters> flat;
  std::unique_ptr<DataParallel> parallel;
};

bool is_here(const Tensor& tensor) {
  try {
    (void)tensor.storage()->bytes();
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

std::int64_t here(const Net& net) { return std::count_if(net.weights.begin(), net.weights.end(), is_here); }

TEST(BlockValues, AreThereWhileOpsUseThemAndTheNextOneIsUnderWay) {
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [&](Collective& group) {
      Net net(group);
      ASSERT_EQ(net.flat->blocks().size(), static_cast<std::size_t>(layers));
      EXPECT_EQ(here(net), 0);
      EXPECT_LE(net.flat->values().size(), layers * size / group.size() + layers * FlatParameters::piece_elements);
      for (int step = 0; step < 2; ++step) {
        net.flat->gather_values();
        net.flat->zero_grads();
        Tensor x = Tensor::full({1}, 0);
        for (std::size_t i = 0; i < net.weights.size(); ++i) {
          x = record(Layer{}, x, net.weights[i]);
          EXPECT_TRUE(is_here(net.weights[i]));
          if (i + 1 < net.weights.size()) {
            EXPECT_TRUE(is_here(net.weights[i + 1])) << "it is gathered ahead";
          }
          EXPECT_LE(here(net), 2);
        }
        EXPECT_FLOAT_EQ(static_cast<float>(x.item()), static_cast<float>(size * (1 + 4 + 9 + 16 + 25 + 36)));
        backward(x, 1.0 / group.size());
        EXPECT_LE(here(net), 2);
        net.parallel->reduce();
        const std::vector<double> grads = net.flat->grads().to_doubles();
        for (const auto& [begin, end, place] : net.flat->shards()->ranges())
          for (std::int64_t i = begin; i < end; ++i)
            ASSERT_FLOAT_EQ(static_cast<float>(grads[static_cast<std::size_t>(place + i - begin)]),
                            static_cast<float>(2 * (i / size + 1)));
      }
    });
}

TEST(BlockValues, AreThoseOfTheLastUpdate) {
  run_ranks(2, [](Collective& group) {
    Net net(group);
    const double before = net.loss().item();
    for (std::int64_t i = 0; i < net.flat->values().size(); ++i) net.flat->values().data<float>()[i] *= 2;
    net.flat->gather_values();
    EXPECT_FLOAT_EQ(static_cast<float>(net.loss().item()), static_cast<float>(4 * before));
    EXPECT_EQ(net.weights[3].to_doubles(), std::vector<double>(size, 8));
  });
}

TEST(BlockValues, AGraphOfValuesBeforeAnUpdateIsNotUsed) {
  run_ranks(2, [](Collective& group) {
    Net net(group);
    const Tensor loss = net.loss();
    net.flat->gather_values();
    EXPECT_PRED2(contains, error_message<UsageError>([&] { backward(loss); }), "was changed in place");
  });
}

TEST(BlockValues, AreGivenBackWhereNoOpReadsThem) {
  run_ranks(2, [](Collective& group) {
    Net net(group);
    for (const Tensor& w : net.weights) {
      EXPECT_EQ(w.clone().size(), size);
      EXPECT_LE(here(net), 2);
    }
  });
}

TEST(BlockValues, WritesThatWouldBeLostAreRefused) {
  run_ranks(1, [](Collective& group) {
    Net net(group);
    EXPECT_PRED2(contains, error_message<UsageError>([&] { (void)net.weights[0].data<float>(); }),
                 "ranks keep a part of these values each (zero 3)");
    EXPECT_THROW(net.weights[0].fill_(0), UsageError);
    (void)net.loss();
    net.weights[layers - 1].fill_(0);
    EXPECT_PRED2(contains, error_message<UsageError>([&] { net.flat->gather_values(); }), "were written in place");
    EXPECT_THROW((void)net.flat->masters(), UsageError);
  });
}

TEST(BlockValues, RanksThatUseOthersAreNamed) {
  const std::vector<std::string> failures = test::failures_of_ranks(loopback_groups(2), [](Collective& group) {
    Net net(group);
    if (group.rank() == 0) (void)net.loss();
    group.barrier();
  });
  for (const std::string& failure : failures) EXPECT_PRED2(contains, failure, "calls gather_parts");
}

}  // namespace
}  // namespace hearth::dist::block_values_test
