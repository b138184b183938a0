// Chooses between shared memory and Gloo for every group of a gang.
#include "worker/parallel/host/host_groups.h"

#include "worker/parallel/gloo/gloo_communicator.h"
#include "worker/parallel/local/local_communicator.h"
#include "worker/parallel/shm/shm_communicator.h"

namespace trainyard::parallel {
namespace {

// Copies the options that both transports have.
template <typename Options>
Options OptionsOf(const HostGroupOptions& from, const Group& group) {
  Options options;
  options.rank = from.rank;
  options.world_size = from.world_size;
  options.group = group;
  options.run_dir = from.run_dir;
  options.connect_timeout = from.connect_timeout;
  options.timeout = from.timeout;
  options.cancelled = from.cancelled;
  return options;
}

}  // namespace

ConnectGroup HostGroups(const HostGroupOptions& options) {
  return [options](const Group& group) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    if (MembershipOf(group, options.rank, options.world_size).size() == 1) {
      return MakeLocalCommunicator(MakeLocalGroup(1), 0);
    }
    if (options.transport == HostTransport::kShm) {
      return ConnectShm(OptionsOf<ShmOptions>(options, group));
    }
    auto gloo = OptionsOf<GlooOptions>(options, group);
    gloo.interface = options.interface;
    gloo.worker = options.worker;
    return ConnectGloo(gloo);
  };
}

}  // namespace trainyard::parallel
