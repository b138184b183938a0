#include "worker/trainer/step_exchange.h"

#include "worker/trainer/device_exchange.h"

namespace trainyard::trainer {

absl::Status ConnectExchange(Training& training) {
  Communicators& communicators = training.communicators;
  training.exchange = MakeDeviceExchange({.arena = training.executable->reduction(),
                                          .arena_communicator = communicators.device != nullptr
                                                                    ? communicators.device.get()
                                                                    : communicators.host.get(),
                                          .host = communicators.host.get(),
                                          .synchronize = [executable = training.executable.get()] {
                                            return executable->Synchronize();
                                          }});
  return absl::OkStatus();
}

}  // namespace trainyard::trainer
