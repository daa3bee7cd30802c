// SPDX-License-Identifier: Apache-2.0
// The module tree: names, traversal, modes and observers.
#include "models/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <typeinfo>

#include "autograd/grad_mode.h"
#include "autograd/grad_state.h"

namespace hearth::nn {

namespace {

thread_local CallObserver* observer_of_thread = nullptr;

constexpr const char* before_to = "call to() before FlatParameters are made";

/// UsageError, with nothing changed yet and this advice, if FlatParameters hold a parameter that `is_replaced` names.
template <class F>
void check_not_flat(Module& module, const char* advice, F&& is_replaced) {
  for (const NamedTensor& parameter : module.parameters()) {
    HEARTH_CHECK(UsageError, !is_flat(*parameter.tensor) || !is_replaced(*parameter.tensor), "module ",
                 module.type_name(), ": \"", parameter.name, "\" ", describe(*parameter.tensor), " on ",
                 parameter.tensor->device(),
                 " is part of FlatParameters, and their optimizer would go on training it; ", advice);
    const auto& leaf = parameter.tensor->grad_state();
    HEARTH_CHECK(UsageError,
                 leaf == nullptr || leaf->frozen <= (parameter.frozen ? 1 : 0) || !is_replaced(*parameter.tensor),
                 "module ", module.type_name(), ": \"", parameter.name,
                 "\" is frozen by an nn::FreezeScope, which would not give another tensor back; end the scope first");
  }
}

/// A copy of a parameter in its place: trained or frozen as that one is, and with its hooks.
Tensor trained_as(const Tensor& own, const Tensor& copy) {
  if (own.grad_state() == nullptr) return copy;
  Tensor leaf = requires_grad(copy);
  leaf.grad_state()->frozen = own.grad_state()->frozen;
  leaf.grad_state()->hooks = own.grad_state()->hooks;
  leaf.grad_state()->ready_hooks = own.grad_state()->ready_hooks;
  return leaf;
}

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : name.empty() ? prefix : prefix + "." + name;
}

}  // namespace

ObserverScope::ObserverScope(CallObserver& observer) : previous_(observer_of_thread) { observer_of_thread = &observer; }
ObserverScope::~ObserverScope() { observer_of_thread = previous_; }

Module::~Module() {
  // The base of a parent is alive while its members, the children, are destroyed.
  if (parent_ != nullptr) std::erase(parent_->children_, this);
  for (Module* child : children_) {
    child->parent_ = nullptr;
    child->name_.clear();
    child->for_each_module([](Module& module) { module.lasting_path_ = nullptr; });
  }
}

Tensor Module::forward(const Tensor&) {
  throw UsageError(join_text(type_name(), ": does not take one input; a model that does overrides forward(x)"));
}

Tensor Module::forward_inputs(const Inputs& inputs) {
  throw UsageError(join_text(type_name(), ": does not take ", inputs.size(),
                             " inputs; a model that does overrides forward_inputs(inputs)"));
}

CallObserver* Module::current_observer() { return observer_of_thread; }

thread_local const Module* Module::at_work_ = nullptr;

Module::CallScope::CallScope(const Module& module) : caller_(at_work_) {
  if (caller_ != nullptr && grad_enabled() && &module.top() != &caller_->top()) {
    const bool is_trained = caller_->top().flat_parameter() != nullptr && module.parameter_count() > 0;
    HEARTH_CHECK(
        UsageError, !is_trained || module.flat_parameter() != nullptr, "module ", caller_->type_name(), ": calls a ",
        module.type_name(), " with ", module.parameter_count(),
        " parameters that is not a part of it, so that initialize() has not reached it and no optimizer trains "
        "it; register_module() it in the constructor, or call it within NoGrad if it is not to be trained");
  }
  at_work_ = &module;
}

Module::CallScope::~CallScope() { at_work_ = caller_; }

const Module& Module::top() const {
  const Module* module = this;
  while (module->parent_ != nullptr) module = module->parent_;
  return *module;
}

void Module::OwnTensor::note_blank() {
  blank = tensor->storage();
  blank_version = tensor->storage()->version();
}

bool Module::OwnTensor::is_blank() const {
  const std::shared_ptr<Storage> storage = blank.lock();
  return storage != nullptr && tensor->storage() == storage && storage->version() == blank_version;
}

const Module::OwnTensor* Module::flat_parameter() const {
  for (const OwnTensor& own : parameters_)
    if (is_flat(*own.tensor)) return &own;
  for (const Module* child : children_)
    if (const OwnTensor* const own = child->flat_parameter()) return own;
  return nullptr;
}

void Module::check_before_flat(const char* what, const std::string& name) const {
  // Looking through the whole tree at each registration would make building a deep model quadratic.
  if (!any_flat()) return;
  const OwnTensor* const flat = top().flat_parameter();
  HEARTH_CHECK(UsageError, flat == nullptr, "module ", type_name(), ": ", what, " \"", name, "\" after \"", flat->name,
               "\" became part of FlatParameters, which would not train it; make them of the whole model");
}

void Module::check_new_name(const std::string& name) const {
  HEARTH_CHECK(UsageError, !name.empty() && name.find('.') == std::string::npos, "module ", type_name(), ": \"", name,
               "\" cannot name a part; a name is not empty and has no dot");
  const Module* named = this;
  while (named->is_unnamed()) named = named->parent_;
  HEARTH_CHECK(UsageError, !named->has_part(name), "module ", type_name(), ": \"", name,
               "\" names another part already");
}

bool Module::has_part(const std::string& name) const {
  const auto is_called_so = [&](const OwnTensor& own) { return own.name == name; };
  return std::any_of(parameters_.begin(), parameters_.end(), is_called_so) ||
         std::any_of(buffers_.begin(), buffers_.end(), is_called_so) ||
         std::any_of(children_.begin(), children_.end(), [&](const Module* child) {
           return child->is_unnamed() ? child->has_part(name) : child->name_ == name;
         });
}

void Module::register_module(const std::string& name, Module& child) {
  check_new_name(name);
  attach(name, child);
}

void Module::register_module(Module& child) {
  for (const Module* part : child.children_) check_new_name(part->name_);
  for (const std::vector<OwnTensor>* const tensors : {&child.parameters_, &child.buffers_})
    for (const OwnTensor& own : *tensors) check_new_name(own.name);
  attach("", child);
}

void Module::attach(const std::string& name, Module& child) {
  check_before_flat("registers", name);
  HEARTH_CHECK(UsageError, child.parent_ == nullptr && &child != this, "module ", type_name(), ": \"", name,
               "\" already belongs to a module; register each child once");
  child.name_ = name;
  child.parent_ = this;
  child.for_each_module([](Module& module) { module.lasting_path_ = nullptr; });
  children_.push_back(&child);
}

void Module::parameter(const std::string& name, Tensor& tensor, Init init) {
  check_new_name(name);
  check_before_flat("defines the parameter", name);
  HEARTH_CHECK(UsageError, tensor.defined(), "module ", type_name(), ": parameter \"", name,
               "\" is undefined; give it a shape first");
  HEARTH_CHECK(UsageError, init != nullptr, "module ", type_name(), ": parameter \"", name, "\" has no initialisation");
  tensor = requires_grad(tensor);
  parameters_.push_back({name, &tensor, std::move(init)});
  parameters_.back().note_blank();
}

void Module::buffer(const std::string& name, Tensor& tensor) {
  check_new_name(name);
  HEARTH_CHECK(UsageError, tensor.defined(), "module ", type_name(), ": buffer \"", name,
               "\" is undefined; give it a shape first");
  buffers_.push_back({name, &tensor, {}});
}

void Module::collect(const std::string& prefix, std::vector<OwnTensor> Module::*list,
                     std::vector<NamedTensor>& out) const {
  for (const OwnTensor& own : this->*list)
    out.push_back({joined(prefix, own.name), own.tensor, keep_fp32(), own.frozen, own.is_blank()});
  for (const Module* child : children_) child->collect(joined(prefix, child->name_), list, out);
}

std::vector<NamedTensor> Module::parameters() {
  std::vector<NamedTensor> result;
  collect("", &Module::parameters_, result);
  return result;
}

std::vector<NamedTensor> Module::buffers() {
  std::vector<NamedTensor> result;
  collect("", &Module::buffers_, result);
  return result;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const OwnTensor& own : parameters_) count += own.tensor->size();
  for (const Module* child : children_) count += child->parameter_count();
  return count;
}

void Module::train(bool on) {
  training_ = on;
  for (Module* child : children_) child->train(on);
}

void Module::replace_parameters(const std::function<Tensor(const Tensor&)>& replacement) {
  const std::vector<NamedTensor> all = parameters();
  const std::vector<std::size_t> tied = tied_to(all);
  for (std::size_t i = 0; i < all.size(); ++i)
    *all[i].tensor = tied[i] < i ? *all[tied[i]].tensor : replacement(*all[i].tensor);
  std::size_t i = 0;
  for_each_parameter([&](OwnTensor& own) {
    if (all[i++].uninitialized) own.note_blank();
  });
}

void Module::for_each_parameter(const std::function<void(OwnTensor&)>& f) {
  for (OwnTensor& own : parameters_) f(own);
  for (Module* child : children_) child->for_each_parameter(f);
}

void Module::to(DType dtype) {
  HEARTH_CHECK(DTypeError, dtype == DType::f32 || dtype == DType::f64, "module ", type_name(),
               ": parameters cannot be ", dtype,
               "; they are f32 or f64 (low-precision types belong to the precision level)");
  check_not_flat(*this, before_to, [&](const Tensor& parameter) { return parameter.dtype() != dtype; });
  replace_parameters([&](const Tensor& own) { return own.dtype() == dtype ? own : trained_as(own, own.to(dtype)); });
  for_each_module([&](Module& module) {
    for (const OwnTensor& own : module.buffers_)
      if (is_floating(own.tensor->dtype()) && own.tensor->dtype() != dtype) *own.tensor = own.tensor->to(dtype);
  });
}

void Module::to(Device device) {
  check_not_flat(*this, before_to, [&](const Tensor& parameter) { return parameter.device() != device; });
  replace_parameters([&](const Tensor& own) { return own.device() == device ? own : trained_as(own, own.to(device)); });
  for_each_module([&](Module& module) {
    for (const OwnTensor& own : module.buffers_) *own.tensor = own.tensor->to(device);
  });
}

void Module::freeze(bool on) {
  check_not_flat(*this, "call freeze() before FlatParameters are made, or keep an nn::FreezeScope for a while",
                 [](const Tensor&) { return true; });
  replace_parameters([&](const Tensor& own) {
    const Tensor leaf = trained_as(own, on ? own.detach() : requires_grad(own.detach()));
    if (leaf.grad_state() != nullptr) leaf.grad_state()->frozen = on ? 1 : 0;
    return leaf;
  });
  for_each_parameter([&](OwnTensor& own) { own.frozen = on; });
}

FreezeScope::FreezeScope(Module& module) {
  for (const NamedTensor& parameter : module.parameters())
    if (parameter.tensor->grad_state() != nullptr) leaves_.push_back(parameter.tensor->grad_state());
  for (const std::shared_ptr<GradState>& leaf : leaves_) ++leaf->frozen;
}
FreezeScope::~FreezeScope() {
  for (const std::shared_ptr<GradState>& leaf : leaves_) --leaf->frozen;
}

void Module::on_forward(std::function<void(const Module&, const Tensor&)> f) {
  HEARTH_CHECK(UsageError, f != nullptr, "module ", type_name(), ": on_forward() of an empty function");
  forward_hooks_.push_back(std::move(f));
}

void Module::on_backward(std::function<void(const Module&, const Tensor&)> f) {
  HEARTH_CHECK(UsageError, f != nullptr, "module ", type_name(), ": on_backward() of an empty function");
  on_forward([f = std::move(f)](const Module& module, const Tensor& y) {
    // A leaf is not this call's result: it would go on calling f for others.
    if (!needs_grad(y) || y.grad_state()->node == nullptr) return;
    y.register_hook([f, &module](const Tensor& dy) { f(module, dy); });
  });
}

void Module::zero_grad() {
  for (const NamedTensor& parameter : parameters())
    if (parameter.tensor->grad_state() != nullptr) hearth::zero_grad(*parameter.tensor);
}

void Module::for_each_module(const std::function<void(Module&)>& f) {
  f(*this);
  for (Module* child : children_) child->for_each_module(f);
}

std::string Module::path() const {
  if (!parent_) return name_;
  return joined(parent_->path(), name_);
}

const char* Module::lasting_path() const {
  if (const char* known = lasting_path_.load(std::memory_order_relaxed)) return known;
  const std::string own = parent_ ? path() : "";
  const char* text = lasting_text(own.empty() ? "(model)" : own);
  lasting_path_.store(text, std::memory_order_relaxed);
  return text;
}

int Module::depth() const { return parent_ ? parent_->depth() + (is_unnamed() ? 0 : 1) : 0; }

std::string Module::type_name() const {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), std::free);
  const std::string full = status == 0 && readable ? readable.get() : typeid(*this).name();
  const std::size_t colon = full.rfind("::");
  return colon == std::string::npos ? full : full.substr(colon + 2);
}

Tensor recomputed(Module& module, const Tensor& x) {
  return recomputed(module, [&module](std::span<const Tensor> inputs) { return module(inputs[0]); }, {x});
}

Tensor recomputed(Module& module, Recomputable call, std::vector<Tensor> inputs) {
  std::vector<Tensor> parameters;
  for (const NamedTensor& named : module.parameters())
    if (needs_grad(*named.tensor)) parameters.push_back(*named.tensor);
  return recompute(std::move(call), std::move(inputs), parameters);
}

void initialize(Module& module, std::uint64_t seed) {
  const std::function<void(Module&, const std::string&)> visit = [&](Module& part, const std::string& prefix) {
    for (Module::OwnTensor& own : part.parameters_) {
      own.init(*own.tensor, InitStream(seed, joined(prefix, own.name)));
      own.blank.reset();
    }
    for (Module* child : part.children_) visit(*child, joined(prefix, child->name_));
  };
  visit(module, "");
}

}  // namespace hearth::nn
