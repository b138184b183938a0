// Says whose jobs a worker runs, and as whom.
#pragma once

namespace trainyard::agent {

enum class RunAs {
  kSelf,    // those of the daemon's own user, as that user
  kOwner,   // everybody's, each as its owner; the daemon is root
  kAnyone,  // everybody's, all as the daemon's user
};

}  // namespace trainyard::agent
