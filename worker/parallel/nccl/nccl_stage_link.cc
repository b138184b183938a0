// Enqueues sends and receives on streams of their own.
//
// Each direction has a communicator and a stream. What a stream carries waits for the stage's own
// work, which never waits for another rank: the host waits for what is received, with a deadline,
// before it gives the stage work that reads it. So the stream of the computation always runs dry,
// and each message leaves and arrives in the order of its own direction only. If a neighbour is
// lost, nothing but these streams is held up, and they end when NCCL is aborted.
#include "worker/parallel/nccl/nccl_stage_link.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/parallel/nccl/device_handles.h"

namespace trainyard::parallel {
namespace {

// Owns one float of the device, with which the two ends meet.
class DeviceFloat {
 public:
  DeviceFloat() = default;
  DeviceFloat(const DeviceFloat&) = delete;
  DeviceFloat& operator=(const DeviceFloat&) = delete;
  ~DeviceFloat() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }
  absl::Status Create() {
    return FromCuda(cudaMalloc(reinterpret_cast<void**>(&data_), sizeof(float)),
                    "connecting stages");
  }
  float* get() const { return data_; }

 private:
  float* data_ = nullptr;
};

class NcclStageLink final : public StageLink {
 public:
  NcclStageLink(NcclLines lines, HostLines host, int slots, cudaStream_t compute)
      : compute_(compute),
        peer_(host.peer),
        host_(std::move(host), slots),
        slots_(static_cast<size_t>(slots)),
        receiving_(std::move(lines.receives)),
        sending_(std::move(lines.sends)) {}

  // A communicator waits, when it ends, for that of the other rank. So both ends must end the two
  // directions in one order.
  ~NcclStageLink() override {
    (IsBefore() ? sending_ : receiving_).communicator = nullptr;
    (IsBefore() ? receiving_ : sending_).communicator = nullptr;
  }

  absl::Status Open() {
    for (Slot& slot : slots_) {
      for (OwnedEvent* event : {&slot.written, &slot.sent, &slot.released, &slot.received}) {
        TY_RETURN_IF_ERROR(event->Create());
      }
    }
    TY_RETURN_IF_ERROR(receiving_.stream.Create());
    TY_RETURN_IF_ERROR(sending_.stream.Create());
    return Meet();
  }

  absl::Status Send(int slot, absl::Span<const float> values) override {
    const Slot& of = At(slot);
    TY_RETURN_IF_ERROR(Mark(of.written, compute_));
    TY_RETURN_IF_ERROR(Follow(sending_.stream.get(), of.written));
    TY_RETURN_IF_ERROR(EnqueueSend(values));
    return Mark(of.sent, sending_.stream.get());
  }

  absl::Status AwaitSent(int slot) override {
    return sending_.communicator->Await(At(slot).sent.get());
  }

  absl::Status Receive(int slot, absl::Span<float> values) override {
    const Slot& of = At(slot);
    TY_RETURN_IF_ERROR(Follow(receiving_.stream.get(), of.released));
    TY_RETURN_IF_ERROR(EnqueueReceive(values));
    TY_RETURN_IF_ERROR(Mark(of.received, receiving_.stream.get()));
    return receiving_.communicator->Await(of.received.get());
  }

  absl::Status Release(int slot) override { return Mark(At(slot).released, compute_); }

  absl::Status SendNumbers(absl::Span<const float> numbers) override {
    for (const Slot& slot : slots_) {
      TY_RETURN_IF_ERROR(sending_.communicator->Await(slot.sent.get()));
    }
    return host_.SendNumbers(numbers);
  }
  absl::Status ReceiveNumbers(absl::Span<float> numbers) override {
    return host_.ReceiveNumbers(numbers);
  }

  void set_timeout(absl::Duration timeout) override {
    host_.set_timeout(timeout);
    receiving_.communicator->set_timeout(timeout);
    sending_.communicator->set_timeout(timeout);
  }

 private:
  // An event that was never recorded holds up nobody.
  struct Slot {
    OwnedEvent written;   // the stage has computed what leaves
    OwnedEvent sent;      // it has left
    OwnedEvent released;  // the stage has read what came
    OwnedEvent received;  // something new has come
  };
  // One direction. The communicator ends first, which ends what is left on its stream.
  struct Line {
    explicit Line(std::unique_ptr<NcclCommunicator> of) : communicator(std::move(of)) {}
    OwnedStream stream;
    std::unique_ptr<NcclCommunicator> communicator;
  };

  // Returns true if this stage is the one before, which is the lower rank of the two.
  bool IsBefore() const { return peer_ > 0; }
  const Slot& At(int slot) const { return slots_[static_cast<size_t>(slot)]; }

  absl::Status EnqueueSend(absl::Span<const float> values) {
    // NCCL only reads what it sends.
    const NcclCommunicator::Message message = {peer_, const_cast<float*>(values.data()),
                                               static_cast<int64_t>(values.size())};
    return sending_.communicator->EnqueueMessages("send", {message}, {}, sending_.stream.get());
  }
  absl::Status EnqueueReceive(absl::Span<float> values) {
    const NcclCommunicator::Message message = {peer_, values.data(),
                                               static_cast<int64_t>(values.size())};
    return receiving_.communicator->EnqueueMessages("receive", {}, {message},
                                                    receiving_.stream.get());
  }

  // Connects both directions now. NCCL connects two ranks when they first talk, and a call returns
  // only then. The stage before sends first, so that both ends connect the same direction.
  absl::Status Meet() {
    DeviceFloat out, in;
    TY_RETURN_IF_ERROR(out.Create());
    TY_RETURN_IF_ERROR(in.Create());
    if (IsBefore()) TY_RETURN_IF_ERROR(EnqueueSend({out.get(), 1}));
    absl::Status status = EnqueueReceive({in.get(), 1});
    if (status.ok() && !IsBefore()) status = EnqueueSend({out.get(), 1});
    // The floats must outlive what is enqueued, whatever has failed.
    status.Update(End(sending_, slots_.front().sent));
    status.Update(End(receiving_, slots_.front().received));
    return status;
  }
  // Waits for all of a line's messages. A line that has failed was aborted.
  static absl::Status End(const Line& line, const OwnedEvent& event) {
    TY_RETURN_IF_ERROR(Mark(event, line.stream.get()));
    return line.communicator->Await(event.get());
  }

  const cudaStream_t compute_;
  const int peer_;
  HostStageLink host_;
  std::vector<Slot> slots_;
  Line receiving_;
  Line sending_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StageLink>> MakeNcclStageLink(NcclLines lines, HostLines host,
                                                             int slots, cudaStream_t compute) {
  auto link = std::make_unique<NcclStageLink>(std::move(lines), std::move(host), slots, compute);
  TY_RETURN_IF_ERROR(link->Open());
  return std::unique_ptr<StageLink>(std::move(link));
}

}  // namespace trainyard::parallel
