// SPDX-License-Identifier: Apache-2.0
// The one oracle for ops. Central differences vouch for f64 on the CPU; f64 on the CPU vouches for every other site
// (a device and a type). A test states the op and its inputs once:
//
//   namespace hearth::test {
//   namespace {
//   OP_TEST(Softmax) {
//     for (const Shape& shape : {Shape{1, 1}, {3, 37}, {2, 5, 129}})
//       check([&](Draw& draw) { return softmax(draw.normal(shape)); });
//   }
//   }  // namespace
//   }  // namespace hearth::test
//
// and becomes Op.Softmax/cpu_f64, .../cpu_f32, .../cpu_f16 and .../cpu_bf16 and, where there is a CUDA device (a real
// one or the emulated one), .../cuda_f64 and so on. Names are unique in a program.
//
// Besides value and gradient, every check demands that results are finite, that inputs are left alone, that strided
// views of the inputs give the same bits as contiguous ones, and that one and three threads, or two runs on a device,
// give the same bits. Where the inputs are small, gradients from strided inputs and a strided dy have the same bits
// too, and each input has the same gradient where it alone wants one.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"

namespace hearth::test {

/// Where an op test runs: a device and the type of the floating inputs.
struct Site {
  const char* name;
  Device device;
  DType dtype;
};

/// The type of a floating draw: the site's, or at 16-bit sites f32 (parameters of norms).
enum class Width { site, wide };

/// The inputs of one check, as row-major doubles that the site's type can represent.
struct DrawnInput {
  Shape shape;
  DType dtype;  ///< at the site; floating inputs become f64 in the oracle's run
  std::vector<double> values;
  bool floating = true;
  bool needs_grad = true;
};

/// Makes inputs. The function under test is called several times and must draw the same inputs in the same order;
/// it gets the same values each time, in the type of that run. Floating draws are leaves, constants and integers are
/// not.
class Draw {
 public:
  /// Standard normal values times `scale`.
  Tensor normal(const Shape& shape, double scale = 1.0, Width width = Width::site);
  /// Uniform in [low, high).
  Tensor uniform(const Shape& shape, double low, double high, Width width = Width::site);
  /// 0.1 <= |x| <= 2 with either sign, for functions with a kink at zero.
  Tensor away_from_zero(const Shape& shape, Width width = Width::site);
  /// In [0.5, 2).
  Tensor positive(const Shape& shape, Width width = Width::site);
  /// A permutation of values 1/64 apart around zero: maxima are unique and stay so under small steps.
  Tensor distinct(const Shape& shape, Width width = Width::site);
  /// In [0, bound), without gradient.
  Tensor integers(const Shape& shape, std::int64_t bound, DType dtype = DType::i64);
  /// Given values in the run's type, without gradient.
  Tensor constant(const Shape& shape, const std::vector<double>& values, Width width = Width::site);
  /// Given integers, without gradient.
  Tensor indices(const Shape& shape, const std::vector<double>& values, DType dtype = DType::i64);

  /// The type of floating draws in this run: the site's, or f64 while the oracle runs.
  DType dtype() const { return oracle_ ? DType::f64 : site_dtype_; }
  /// The type that every value was rounded to before any run.
  DType rounding() const { return site_dtype_; }

 private:
  friend class Checker;
  Draw(std::uint64_t seed, DType site_dtype, Device site_device, std::vector<DrawnInput>& inputs)
      : seed_(seed), site_dtype_(site_dtype), site_device_(site_device), inputs_(&inputs) {}
  template <class Make>
  Tensor floating(const Shape& shape, Width width, bool needs_grad, Make&& make);
  Tensor take(const Shape& shape);

  std::uint64_t seed_;
  DType site_dtype_;
  Device site_device_;
  std::vector<DrawnInput>* inputs_;
  bool oracle_ = false;
  bool strided_ = false;
  bool leaves_ = true;
  std::optional<std::size_t> only_leaf_;
  std::size_t next_ = 0;
  std::vector<Tensor> made_;
};

using OpBody = std::function<Tensor(Draw&)>;
/// An independent computation of the same values, row-major, from the draws' to_doubles().
using NaiveBody = std::function<std::vector<double>(Draw&)>;

struct CheckOptions {
  /// Multiplies every tolerance. A case that needs it says why.
  double tolerance_scale = 1.0;
  /// Only values are compared: the op has no gradient.
  bool no_gradient = false;
};

/// Runs the function at the current test's site and reports every disagreement as a test failure.
void check(const OpBody& body, const CheckOptions& options = {});
/// The same, and the f64 values must agree with `naive` to 1e-12 of the largest magnitude (times tolerance_scale).
void check(const OpBody& body, const NaiveBody& naive, const CheckOptions& options = {});

/// What check() would report at `site`.
std::vector<std::string> disagreements(const Site& site, const OpBody& body, const NaiveBody& naive,
                                       const CheckOptions& options);

/// The site of the running OP_TEST; cpu_f32 outside of one.
const Site& current_site();
/// The floating type of the running OP_TEST; f32 outside of one.
DType site_dtype();
/// All sites that can be tested here, CPU f64 first.
std::span<const Site> sites();

/// Same shape and |a - b| <= tolerance * max(1, largest |b|) everywhere. NaN never agrees.
void expect_close(const Tensor& a, const Tensor& b, double tolerance);

/// Expects f() to throw exactly ErrorType with a message that contains `op`.
template <class ErrorType, class F>
void refuses(const std::string& op, F&& f) {
  try {
    (void)f();
  } catch (const Error& error) {
    EXPECT_TRUE(typeid(error) == typeid(ErrorType)) << op << " threw a " << error.kind() << " error: " << error.what();
    EXPECT_NE(std::string(error.what()).find(op), std::string::npos)
        << "the message does not name " << op << ": " << error.what();
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << op << " threw something that is not hearth::Error: " << error.what();
    return;
  }
  ADD_FAILURE() << op << " accepted what it must refuse";
}

/// Registers one test a site. Use OP_TEST.
bool register_op_test(const char* name, void (*body)(), const char* file, int line);

}  // namespace hearth::test

#define OP_TEST(Name)                                                                    \
  static void op_test_body_##Name();                                                     \
  [[maybe_unused]] static const bool op_test_registered_##Name =                         \
      ::hearth::test::register_op_test(#Name, &op_test_body_##Name, __FILE__, __LINE__); \
  static void op_test_body_##Name()
