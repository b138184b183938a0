// Packs points of one series into a blob. Neighbours differ little, so a point takes some 13 bytes
// where a row takes 35.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::store {

struct PackedPoint {
  int64_t cursor = 0;
  int64_t step = 0;
  double value = 0;
  int64_t time_us = 0;

  friend bool operator==(const PackedPoint&, const PackedPoint&) = default;
};

// Each point is the differences of its cursor, step and time to those of the point before it (of
// zeros, for the first), as the varints of Protocol Buffers' sint64, and then the 8 bytes of its
// value, the lowest first.
std::string EncodePoints(const std::vector<PackedPoint>& points);

// Returns nothing if the bytes are no points.
std::optional<std::vector<PackedPoint>> DecodePoints(absl::string_view bytes);

}  // namespace trainyard::store
