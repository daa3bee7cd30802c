// SPDX-License-Identifier: Apache-2.0
// The base of every layer and model: a tree of named children, parameters and buffers. A model is a struct whose
// layers are plain members:
//
//   struct Mlp : nn::Module {
//     nn::Linear in, out;
//     Mlp(int features, int classes) : in(features, 512), out(512, classes) { register_module("in", in);
//     register_module("out", out); } Tensor forward(const Tensor& x) override { return out(gelu(in(x))); }
//   };
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/parameters.h"
#include "autograd/recompute.h"
#include "core/origin.h"
#include "core/other_names.h"
#include "core/tensor.h"
#include "models/nn/init.h"

namespace hearth::nn {

class Module;

/// What a model of several inputs takes, in order.
using Inputs = std::vector<Tensor>;

/// Sees the module calls of this thread while it is installed by an ObserverScope.
class HEARTH_API CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void before(const Module& module) = 0;
  /// `y` is the result; not called when the module threw.
  virtual void after(const Module& module, const Tensor& y) = 0;
};

class HEARTH_API ObserverScope {
 public:
  explicit ObserverScope(CallObserver& observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  CallObserver* previous_;
};

/// A layer or a model. Neither copied nor moved, since its parent and its parameters' owners point into it.
class HEARTH_API Module {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// The outputs for one input. UsageError unless the model overrides it.
  virtual Tensor forward(const Tensor& x);
  /// The outputs for two inputs or more: a sequence and its translation so far, an image and a point in time.
  /// UsageError unless the model overrides it.
  virtual Tensor forward_inputs(const Inputs& inputs);
  /// forward(x), seen by observers. This is how modules call their parts: UsageError for one that was not registered
  /// once the others are part of FlatParameters, unless NoGrad is on.
  Tensor operator()(const Tensor& x) {
    return observed([&] { return forward(x); });
  }
  /// forward() of a single input, or forward_inputs(), seen by observers.
  Tensor operator()(const Inputs& inputs) {
    return observed([&] { return inputs.size() == 1 ? forward(inputs[0]) : forward_inputs(inputs); });
  }
  template <std::same_as<Tensor>... More>
  requires(sizeof...(More) > 0) Tensor operator()(const Tensor& first, const More&... more) {
    return (*this)(Inputs{first, more...});
  }

  /// All parameters below this module, in order of definition (a module's own before its children's), with dotted
  /// names relative to this module: "layer1.0.conv1.weight".
  std::vector<NamedTensor> parameters();
  /// All buffers (running statistics: saved, but not trained), named and ordered likewise.
  std::vector<NamedTensor> buffers();
  /// Elements of all parameters.
  std::int64_t parameter_count() const;

  /// Training or evaluation behaviour (dropout, batch statistics) of this module and all below.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Takes the parameters of this module and all below out of training, or back in: frozen ones get no gradient and no
  /// update, and FlatParameters leave them out. They stay among parameters(), so that they are saved. UsageError for
  /// parameters that are part of FlatParameters: freeze before those are made, or for a while by FreezeScope.
  void freeze(bool on = true);
  /// Runs f(module, y) after each call of this module, with its result.
  void on_forward(std::function<void(const Module&, const Tensor& y)> f);
  /// Runs f(module, dy) in each backward pass, with the gradient of the result of each call of this module that was
  /// recorded. This module must be alive then. To change a gradient: Tensor::register_hook().
  void on_backward(std::function<void(const Module&, const Tensor& dy)> f);
  /// Forgets the gradients of all parameters below this module; Optimizer::zero_grad() does it for those it updates.
  void zero_grad();

  /// Converts all parameters and buffers; f32 and f64 only (DTypeError). UsageError if a parameter to be converted is
  /// part of FlatParameters, which would go on with the old values. Tied weights stay tied.
  void to(DType dtype);
  /// Moves all parameters and buffers. UsageError as above.
  void to(Device device);

  HEARTH_OTHER_MEMBER(state_dict, "write save(model, path), or look at model.parameters() and model.buffers()")
  HEARTH_OTHER_MEMBER(load_state_dict, "write load(model, path)")
  HEARTH_OTHER_MEMBER(clone, "make a second model; save() the first and load() it, or copy_from() its parameters")
  HEARTH_OTHER_MEMBER(cuda, "write model.to(Device{DeviceType::cuda, 0})")

  /// f(module) for this module and all below, a parent before its children.
  void for_each_module(const std::function<void(Module&)>& f);

  /// Whether parameters stay f32 where others have low precision (mixed precision O2): norms say so.
  virtual bool keep_fp32() const { return false; }

  /// Name within the parent; "" at the top, and for one that was registered without.
  const std::string& name() const { return name_; }
  /// Dotted name from the top of the tree; "" at the top.
  std::string path() const;
  /// Class name without namespaces, for reports.
  std::string type_name() const;
  /// How many modules with names are above this one, the top included.
  int depth() const;
  bool is_leaf_module() const { return children_.empty(); }
  /// Whether an observer or a hook is to see its calls.
  bool is_watched() const { return !forward_hooks_.empty() || (!is_unnamed() && current_observer() != nullptr); }

 protected:
  /// Makes `child`, a member, part of this module until either is destroyed: then its name is free for another, or the
  /// child for another parent. UsageError for a name that is taken, empty or dotted, and for a child that has a parent;
  /// and once parameters of the tree are part of FlatParameters, which would not train it.
  void register_module(const std::string& name, Module& child);
  /// The same without a name: the parts and tensors of `child` are named as if they were this module's own, and
  /// observers see the calls of its parts, not its own. For layers that join others whose names are given by a format.
  void register_module(Module& child);
  /// Makes `tensor`, a member, a trained parameter; `init` gives its initial values when initialize() runs. UsageError
  /// as register_module().
  void parameter(const std::string& name, Tensor& tensor, Init init);
  /// Makes `tensor`, a member, part of the saved state without training it.
  void buffer(const std::string& name, Tensor& tensor);

  /// For calls with other arguments than forward's: runs f, which returns a Tensor, seen by observers.
  template <class F>
  Tensor observed(F&& f) {
    const OriginScope origin = OriginScope::of_layer(lasting_path());
    const CallScope call(*this);
    CallObserver* observer = is_unnamed() ? nullptr : current_observer();
    if (observer != nullptr) observer->before(*this);
    Tensor y = f();
    if (observer != nullptr) observer->after(*this, y);
    // A hook may register another, which moves the list.
    for (std::size_t i = 0, count = forward_hooks_.size(); i < count; ++i) {
      const auto hook = forward_hooks_[i];
      hook(*this, y);
    }
    return y;
  }

 private:
  friend void initialize(Module& module, std::uint64_t seed);
  struct OwnTensor {
    std::string name;
    Tensor* tensor;
    Init init;
    bool frozen = false;
    /// What it had when it was defined, until initialize() has run, and the version of that: nobody has given it values
    /// while both are the same.
    std::weak_ptr<Storage> blank{};
    std::uint64_t blank_version = 0;

    void note_blank();
    bool is_blank() const;
  };
  /// The module at work on this thread. UsageError for one that would be trained if it were a part of the module that
  /// calls it.
  class CallScope {
   public:
    explicit CallScope(const Module& module);
    ~CallScope();
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    const Module* caller_;
  };
  static thread_local const Module* at_work_;
  static CallObserver* current_observer();
  const Module& top() const;
  bool is_unnamed() const { return parent_ != nullptr && name_.empty(); }
  /// Whether something of this module, or of an unnamed one below it, is called so.
  bool has_part(const std::string& name) const;
  void attach(const std::string& name, Module& child);
  /// The first parameter of this module and all below that is part of FlatParameters; null if there is none.
  const OwnTensor* flat_parameter() const;
  void check_before_flat(const char* what, const std::string& name) const;
  /// Gives each parameter of the tree another tensor. Tied weights stay tied, and what has no values has none.
  void replace_parameters(const std::function<Tensor(const Tensor&)>& replacement);
  void for_each_parameter(const std::function<void(OwnTensor&)>& f);
  /// path(), kept until the process ends; "(model)" at the top.
  const char* lasting_path() const;
  void check_new_name(const std::string& name) const;
  void collect(const std::string& prefix, std::vector<OwnTensor> Module::*list, std::vector<NamedTensor>& out) const;

  std::string name_;
  Module* parent_ = nullptr;
  std::vector<Module*> children_;
  std::vector<OwnTensor> parameters_;
  std::vector<OwnTensor> buffers_;
  std::vector<std::function<void(const Module&, const Tensor&)>> forward_hooks_;
  bool training_ = true;
  mutable std::atomic<const char*> lasting_path_{nullptr};
};

/// While it lives, the parameters of a module get no gradient, as if they were frozen: gradients pass through the
/// module to what comes before it, as those of a generator through its discriminator. Unlike freeze() it may come after
/// FlatParameters; an optimizer of theirs would go on by weight decay and momentum, so do not step it meanwhile.
/// Forward and backward pass both run within it.
class HEARTH_API FreezeScope {
 public:
  explicit FreezeScope(Module& module);
  ~FreezeScope();
  FreezeScope(const FreezeScope&) = delete;
  FreezeScope& operator=(const FreezeScope&) = delete;

 private:
  std::vector<std::shared_ptr<GradState>> leaves_;
};

/// module(x), of which only x is saved for the gradient: the rest is computed again in the backward pass. The same bits
/// (but for the gradient of an x that is used elsewhere too), less memory, about a third more time. See recompute() in
/// autograd/recompute.h.
HEARTH_API Tensor recomputed(Module& module, const Tensor& x);
/// The same of call(inputs), which runs the module in another way.
HEARTH_API Tensor recomputed(Module& module, Recomputable call, std::vector<Tensor> inputs);

/// Gives every parameter its initial values. They are a function of (seed, the parameter's dotted name) only: not of
/// thread count, order of construction, or the other parameters. Buffers are left alone.
HEARTH_API void initialize(Module& module, std::uint64_t seed);

}  // namespace hearth::nn
