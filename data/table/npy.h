// SPDX-License-Identifier: Apache-2.0
// Arrays in NumPy's files: .npy (numpy.lib.format, versions 1 to 3), and .npz, which is a ZIP archive of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hearth::data {

struct NumpyArray {
  std::string name{};  ///< file and array, for messages
  std::vector<std::int64_t> shape;
  bool is_integer = false;       ///< of integers or truth values
  std::vector<double> values{};  ///< the last axis innermost

  std::int64_t rows() const { return shape.empty() ? 0 : shape.front(); }
};

/// Reads PATH.npy, or of PATH.npz the array `name`. FileError if there is no such file; DataError, naming file and
/// array, for what is cut off or damaged, arrays in Fortran's order, and types that are no numbers.
NumpyArray read_numpy(const std::string& path, const std::string& name = {});

/// Whether PATH.npz has such an array. Errors as of read_numpy().
bool has_array(const std::string& path, const std::string& name);

/// The array in the bytes of a .npy file.
NumpyArray parse_npy(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace hearth::data
