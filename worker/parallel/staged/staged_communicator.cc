#include "worker/parallel/staged/staged_communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/parallel/collective.h"
#include "worker/parallel/nccl/device_handles.h"

namespace trainyard::parallel {
namespace {

constexpr size_t kStages = 2;

// One chunk's memory on the host: what goes out and what comes in. [chunk] each.
struct Stage {
  float* outgoing = nullptr;
  float* incoming = nullptr;
  OwnedEvent loaded;  // outgoing holds what the device had
  OwnedEvent stored;  // the device has what incoming held
};

class StagedCommunicator : public Communicator {
 public:
  // `owned` is `inner`, or null where another owns it.
  StagedCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned, size_t chunk)
      : owned_(std::move(owned)), inner_(inner), chunk_(chunk) {}

  ~StagedCommunicator() override {
    (void)cudaSetDevice(device_);
    // Copies must not outlive their memory.
    (void)cudaStreamSynchronize(down_.get());
    (void)cudaStreamSynchronize(up_.get());
    if (host_ != nullptr) (void)cudaFreeHost(host_);
  }

  absl::Status Open() {
    TY_RETURN_IF_ERROR(FromCuda(cudaGetDevice(&device_), "device of a communicator"));
    TY_RETURN_IF_ERROR(down_.Create());
    TY_RETURN_IF_ERROR(up_.Create());
    void* memory = nullptr;
    const cudaError_t error =
        cudaHostAlloc(&memory, 2 * kStages * chunk_ * sizeof(float), cudaHostAllocDefault);
    if (error != cudaSuccess) {
      (void)cudaGetLastError();
      return absl::ResourceExhaustedError(
          absl::StrCat("pinned memory of a communicator: ", cudaGetErrorString(error)));
    }
    host_ = static_cast<float*>(memory);
    for (size_t i = 0; i < kStages; ++i) {
      stages_[i].outgoing = host_ + 2 * i * chunk_;
      stages_[i].incoming = stages_[i].outgoing + chunk_;
      TY_RETURN_IF_ERROR(stages_[i].loaded.Create());
      TY_RETURN_IF_ERROR(stages_[i].stored.Create());
    }
    return absl::OkStatus();
  }

  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  void set_timeout(absl::Duration timeout) override { inner_.set_timeout(timeout); }

  absl::Status AllReduce(absl::Span<float> values) override {
    ++sequence_;
    const auto load = [&](size_t begin, size_t size, Stage& stage) {
      return Load(stage.outgoing, values.data() + begin, size);
    };
    const auto exchange = [&](size_t, size_t size, Stage& stage) {
      return inner_.AllReduce(absl::MakeSpan(stage.outgoing, size));
    };
    const auto store = [&](size_t begin, size_t size, Stage& stage) {
      return Store(values.data() + begin, stage.outgoing, size);
    };
    return Pipeline(values.size(), chunk_, load, exchange, store);
  }

  // Of every rank's block a piece makes up a chunk.
  absl::Status ReduceScatter(absl::Span<const float> values, absl::Span<float> block) override {
    ++sequence_;
    TY_RETURN_IF_ERROR(CheckSizes("reduce_scatter", values, block));
    const auto load = [&](size_t begin, size_t size, Stage& stage) {
      absl::Status status;
      for (size_t of = 0; of < ranks(); ++of) {
        status.Update(
            Load(stage.outgoing + of * size, values.data() + of * block.size() + begin, size));
      }
      return status;
    };
    const auto exchange = [&](size_t, size_t size, Stage& stage) {
      return inner_.ReduceScatter(absl::MakeConstSpan(stage.outgoing, size * ranks()),
                                  absl::MakeSpan(stage.incoming, size));
    };
    const auto store = [&](size_t begin, size_t size, Stage& stage) {
      return Store(block.data() + begin, stage.incoming, size);
    };
    return Pipeline(block.size(), chunk_ / ranks(), load, exchange, store);
  }

  absl::Status AllGather(absl::Span<const float> block, absl::Span<float> values) override {
    ++sequence_;
    TY_RETURN_IF_ERROR(CheckSizes("all_gather", values, block));
    const auto load = [&](size_t begin, size_t size, Stage& stage) {
      return Load(stage.outgoing, block.data() + begin, size);
    };
    const auto exchange = [&](size_t, size_t size, Stage& stage) {
      return inner_.AllGather(absl::MakeConstSpan(stage.outgoing, size),
                              absl::MakeSpan(stage.incoming, size * ranks()));
    };
    const auto store = [&](size_t begin, size_t size, Stage& stage) {
      absl::Status status;
      for (size_t of = 0; of < ranks(); ++of) {
        status.Update(
            Store(values.data() + of * block.size() + begin, stage.incoming + of * size, size));
      }
      return status;
    };
    return Pipeline(block.size(), chunk_ / ranks(), load, exchange, store);
  }

  absl::Status Broadcast(absl::Span<float> values, int root) override {
    ++sequence_;
    const auto load = [&](size_t begin, size_t size, Stage& stage) {
      if (rank() != root) return absl::OkStatus();
      return Load(stage.outgoing, values.data() + begin, size);
    };
    const auto exchange = [&](size_t, size_t size, Stage& stage) {
      return inner_.Broadcast(absl::MakeSpan(stage.outgoing, size), root);
    };
    const auto store = [&](size_t begin, size_t size, Stage& stage) {
      if (rank() == root) return absl::OkStatus();
      return Store(values.data() + begin, stage.outgoing, size);
    };
    return Pipeline(values.size(), chunk_, load, exchange, store);
  }

  absl::Status Barrier() override {
    ++sequence_;
    return inner_.Barrier();
  }

  // Of every part a piece makes up a chunk. Parts differ, so the ranks tell each other first how
  // many pieces the largest one has.
  absl::Status AllToAll(absl::Span<const absl::Span<const float>> send,
                        absl::Span<const absl::Span<float>> receive) override {
    ++sequence_;
    TY_RETURN_IF_ERROR(CheckParts({rank(), "all_to_all", sequence_}, world_size(), send, receive));
    size_t largest = 0;
    for (size_t peer = 0; peer < ranks(); ++peer) {
      largest = std::max({largest, send[peer].size(), receive[peer].size()});
    }
    const size_t piece = chunk_ / ranks();
    TY_ASSIGN_OR_RETURN(const size_t pieces, Largest((largest + piece - 1) / piece));
    const auto load = [&](size_t begin, size_t size, Stage& stage) {
      absl::Status status;
      for (size_t to = 0; to < ranks(); ++to) {
        const auto part = Piece(send[to], begin, size);
        status.Update(Load(stage.outgoing + to * size, part.data(), part.size()));
      }
      return status;
    };
    const auto exchange = [&](size_t begin, size_t size, Stage& stage) {
      std::vector<absl::Span<const float>> out;
      std::vector<absl::Span<float>> in;
      for (size_t peer = 0; peer < ranks(); ++peer) {
        out.emplace_back(stage.outgoing + peer * size, Piece(send[peer], begin, size).size());
        in.emplace_back(stage.incoming + peer * size, Piece(receive[peer], begin, size).size());
      }
      return inner_.AllToAll(out, in);
    };
    const auto store = [&](size_t begin, size_t size, Stage& stage) {
      absl::Status status;
      for (size_t of = 0; of < ranks(); ++of) {
        const auto part = Piece(receive[of], begin, size);
        status.Update(Store(part.data(), stage.incoming + of * size, part.size()));
      }
      return status;
    };
    return Pipeline(pieces * piece, piece, load, exchange, store);
  }

  absl::Status Send(absl::Span<const float> values, int peer) override {
    const auto load = [&](size_t begin, size_t size, Stage& stage) {
      return Load(stage.outgoing, values.data() + begin, size);
    };
    const auto exchange = [&](size_t, size_t size, Stage& stage) {
      return inner_.Send(absl::MakeConstSpan(stage.outgoing, size), peer);
    };
    const auto keep = [](size_t, size_t, Stage&) { return absl::OkStatus(); };
    return Pipeline(values.size(), chunk_, load, exchange, keep);
  }

  absl::Status Receive(absl::Span<float> values, int peer) override {
    const auto keep = [](size_t, size_t, Stage&) { return absl::OkStatus(); };
    const auto exchange = [&](size_t, size_t size, Stage& stage) {
      return inner_.Receive(absl::MakeSpan(stage.incoming, size), peer);
    };
    const auto store = [&](size_t begin, size_t size, Stage& stage) {
      return Store(values.data() + begin, stage.incoming, size);
    };
    return Pipeline(values.size(), chunk_, keep, exchange, store);
  }

 private:
  // A part of one chunk's way: its first element and size in what is exchanged.
  using Part = std::function<absl::Status(size_t begin, size_t size, Stage& stage)>;

  size_t ranks() const { return static_cast<size_t>(world_size()); }

  template <typename T>
  static absl::Span<T> Piece(absl::Span<T> part, size_t begin, size_t size) {
    return begin < part.size() ? part.subspan(begin, size) : absl::Span<T>();
  }

  // The largest of the ranks' numbers, each below 2^24: floats hold them.
  absl::StatusOr<size_t> Largest(size_t mine) {
    const auto own = static_cast<float>(mine);
    std::vector<float> all(ranks());
    TY_RETURN_IF_ERROR(inner_.AllGather(absl::MakeConstSpan(&own, 1), absl::MakeSpan(all)));
    return static_cast<size_t>(*std::max_element(all.begin(), all.end()));
  }

  absl::Status CheckSizes(absl::string_view operation, absl::Span<const float> values,
                          absl::Span<const float> block) const {
    if (values.size() == block.size() * ranks()) return absl::OkStatus();
    return CollectiveMismatch(
        {rank(), operation, sequence_},
        absl::StrCat(values.size(), " elements do not fit blocks of ", block.size()));
  }

  absl::Status Load(float* host, const float* device, size_t size) {
    return Copy(host, device, size, cudaMemcpyDeviceToHost, down_.get());
  }
  absl::Status Store(float* device, const float* host, size_t size) {
    return Copy(device, host, size, cudaMemcpyHostToDevice, up_.get());
  }
  static absl::Status Copy(float* to, const float* from, size_t size, cudaMemcpyKind kind,
                           cudaStream_t stream) {
    if (size == 0) return absl::OkStatus();
    return FromCuda(cudaMemcpyAsync(to, from, size * sizeof(float), kind, stream),
                    "copy of a collective");
  }

  // Chunk i is loaded while chunk i - 1 is exchanged and chunk i - 2 stored. Empty values are one
  // empty chunk, so that ranks stay in step.
  absl::Status Pipeline(size_t size, size_t chunk, const Part& load, const Part& exchange,
                        const Part& store) {
    TY_RETURN_IF_ERROR(FromCuda(cudaSetDevice(device_), "device of a communicator"));
    const size_t chunks = std::max<size_t>(1, (size + chunk - 1) / chunk);
    const auto size_of = [&](size_t i) { return std::min(chunk, size - i * chunk); };
    absl::Status status = LoadChunk(0, size_of(0), chunk, load);
    for (size_t i = 0; i < chunks && status.ok(); ++i) {
      if (i + 1 < chunks) status = LoadChunk(i + 1, size_of(i + 1), chunk, load);
      Stage& stage = stages_[i % kStages];
      status.Update(FromCuda(cudaEventSynchronize(stage.loaded.get()), "copy of a collective"));
      if (status.ok()) status = exchange(i * chunk, size_of(i), stage);
      if (status.ok()) status = store(i * chunk, size_of(i), stage);
      status.Update(FromCuda(cudaEventRecord(stage.stored.get(), up_.get()), "copy"));
    }
    // Whatever happened: nobody may write to the caller's memory later.
    status.Update(FromCuda(cudaStreamSynchronize(down_.get()), "copies of a collective"));
    status.Update(FromCuda(cudaStreamSynchronize(up_.get()), "copies of a collective"));
    return status;
  }

  absl::Status LoadChunk(size_t i, size_t size, size_t chunk, const Part& load) {
    Stage& stage = stages_[i % kStages];
    // The chunk before in this memory may still be on its way back.
    TY_RETURN_IF_ERROR(
        FromCuda(cudaStreamWaitEvent(down_.get(), stage.stored.get(), 0), "copy of a collective"));
    TY_RETURN_IF_ERROR(load(i * chunk, size, stage));
    return FromCuda(cudaEventRecord(stage.loaded.get(), down_.get()), "copy of a collective");
  }

  const std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  const size_t chunk_;
  int device_ = 0;
  OwnedStream down_;
  OwnedStream up_;
  float* host_ = nullptr;
  std::array<Stage, kStages> stages_;
  int64_t sequence_ = 0;
};

absl::StatusOr<std::unique_ptr<Communicator>> Make(Communicator& inner,
                                                   std::unique_ptr<Communicator> owned,
                                                   const StagedOptions& options) {
  TY_CHECK(options.chunk_elements >= inner.world_size());
  auto staged = std::make_unique<StagedCommunicator>(inner, std::move(owned),
                                                     static_cast<size_t>(options.chunk_elements));
  TY_RETURN_IF_ERROR(staged->Open());
  return staged;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeStagedCommunicator(
    std::unique_ptr<Communicator> inner, const StagedOptions& options) {
  Communicator& borrowed = *inner;
  return Make(borrowed, std::move(inner), options);
}

absl::StatusOr<std::unique_ptr<Communicator>> MakeStagedCommunicator(Communicator& inner,
                                                                     const StagedOptions& options) {
  return Make(inner, nullptr, options);
}

}  // namespace trainyard::parallel
