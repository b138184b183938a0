// Chooses the function that writes a network.
#include "common/networks/networks.h"

namespace trainyard::networks {
namespace {

struct Writer {
  absl::StatusOr<layers::Stack> operator()(const layers::Stack& stack) const { return stack; }
  template <class Spec>
  absl::StatusOr<layers::Stack> operator()(const Spec& spec) const {
    return StackOf(spec);
  }
};

}  // namespace

absl::StatusOr<layers::Stack> StackOf(const Network& network) {
  return std::visit(Writer(), network);
}

}  // namespace trainyard::networks
