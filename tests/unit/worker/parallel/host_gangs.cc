// The transports between processes, for gangs of threads.
#include "tests/unit/worker/parallel/gang.h"
#include "worker/parallel/gloo/gloo_communicator.h"
#include "worker/parallel/shm/shm_communicator.h"

namespace trainyard::parallel {
namespace {

template <class Options>
Options OptionsAt(const Place& place) {
  Options options;
  options.rank = place.rank;
  options.world_size = place.world_size;
  options.run_dir = place.run_dir;
  return options;
}

}  // namespace

Transport GlooTransport() {
  return {"gloo", [](const Place& place) { return ConnectGloo(OptionsAt<GlooOptions>(place)); }};
}

Transport ShmTransport() {
  return {"shm", [](const Place& place) { return ConnectShm(OptionsAt<ShmOptions>(place)); }};
}

}  // namespace trainyard::parallel
