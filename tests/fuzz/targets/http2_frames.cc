// Passes bytes of both directions of a connection to the watch that counts calls and headers.
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "server/relay/call_watch.h"
#include "server/relay/client_calls.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::http2_frames {
namespace {

constexpr size_t kCallsMax = 100;

// One client with one connection.
class Watched {
 public:
  // All its calls must be forgotten some time after its end.
  ~Watched() {
    watch_.reset();
    TY_CHECK(calls_.IsIdle(absl::InfiniteDuration()));
  }

  // Returns false once the connection had to end.
  bool Take(bool is_request, absl::string_view bytes, absl::Duration now) {
    if (!is_request) {
      watch_->TakeAnswers(bytes);
    } else if (goes_on_) {
      goes_on_ = watch_->TakeRequests(bytes, now);
    }
    return goes_on_;
  }
  uint64_t requests() const { return watch_->requests(); }

 private:
  relay::ClientCalls calls_{kCallsMax};
  std::optional<relay::CallWatch> watch_{std::in_place, calls_};
  bool goes_on_ = true;
};

// Each piece is its direction, its size in two bytes, and its bytes. However the bytes are cut into
// pieces, the watch must come to the same judgement.
void Run(absl::string_view bytes) {
  Input input(bytes);
  Watched whole;
  Watched cut;
  absl::Duration now = absl::Seconds(1);
  while (!input.empty()) {
    const bool is_request = input.Below(2) == 0;
    const size_t size = input.Byte() + 256 * input.Below(16);
    const absl::string_view piece = input.Take(size);
    const bool goes_on = whole.Take(is_request, piece, now);
    bool goes_on_cut = true;
    for (size_t i = 0; i < piece.size(); ++i) {
      goes_on_cut = cut.Take(is_request, piece.substr(i, 1), now);
    }
    TY_CHECK(piece.empty() || goes_on == goes_on_cut);
    if (!goes_on) break;
    TY_CHECK(whole.requests() == cut.requests());
    now += absl::Milliseconds(1);
  }
}

const Registration kTarget({.name = "http2_frames", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::http2_frames
