// Reads the event files of TensorBoard: records of TFRecord with a CRC-32C each, whose scalars
// become metrics.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::program {

// A scalar of an event.
struct Scalar {
  int64_t step = 0;
  double wall_time = 0;  // in seconds since 1970
  std::string tag;
  double value = 0;

  friend bool operator==(const Scalar&, const Scalar&) = default;
};

// Says what stands at the beginning of some bytes of an event file.
struct Record {
  enum class Kind {
    kWhole,      // `event` holds it
    kTorn,       // more bytes must come: `bytes` in all
    kDamaged,    // its CRC is wrong; the next one begins after `bytes`
    kTooLarge,   // it is larger than `max_bytes`, and holds no scalar of use; the next one begins
                 // after `bytes`
    kUnreadable  // its length is wrong, so that nobody knows where the next one begins
  };
  Kind kind = Kind::kTorn;
  uint64_t bytes = 0;
  absl::string_view event = {};
};
Record NextRecord(absl::string_view bytes, uint64_t max_bytes);

// Appends the scalars of an event (tensorflow.Event), simple values and tensors of one number.
// Returns false if the bytes are no event; what came before the mistake has been appended then.
bool ReadScalars(absl::string_view event, std::vector<Scalar>& scalars);

}  // namespace trainyard::program
