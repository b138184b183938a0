// Tests statistics of batch norm over the ranks that devices sum by themselves, over the emulated
// NCCL. Each rank is a thread with a device of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/nccl/nccl_on_cpu.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "tests/unit/worker/parallel/device_gang.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"
#include "worker/parallel/nccl/device_handles.h"
#include "worker/trainer/cuda/nccl_sum.h"

namespace trainyard::engine {
namespace {

using parallel::CheckCuda;
using parallel::NcclCommunicator;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::TestBatch;
using testing::Values;

// Sums over threads, in the order of the ranks.
class OrderedSum {
 public:
  explicit OrderedSum(int ranks) : barrier_(ranks), of_rank_(static_cast<size_t>(ranks)) {}

  absl::Status Sum(int rank, absl::Span<double> values) {
    of_rank_[static_cast<size_t>(rank)].assign(values.begin(), values.end());
    barrier_.arrive_and_wait();
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = of_rank_[0][i];
      for (size_t other = 1; other < of_rank_.size(); ++other) values[i] += of_rank_[other][i];
    }
    barrier_.arrive_and_wait();
    return absl::OkStatus();
  }

 private:
  std::barrier<> barrier_;
  std::vector<std::vector<double>> of_rank_;
};

// A rank's part of some steps. With 0 rows, it only takes part.
struct Steps {
  Graph model;
  std::vector<std::vector<int64_t>> rows;  // by step, then by rank
  CompileOptions options = {};
};

// The sums that a rank has after each step.
using SumsByStep = std::vector<Values>;

CompileOptions OptionsOfRank(const Steps& steps, int rank) {
  CompileOptions options = steps.options;
  options.max_rows = 8;
  options.statistics_rank = rank;
  options.statistics_ranks = static_cast<int>(steps.rows[0].size());
  // Calls of the host are an error, unless the test brings a sum.
  if (options.sum_statistics == nullptr) {
    options.sum_statistics = [](absl::Span<double>) {
      return absl::InternalError("the host was asked for a sum");
    };
  }
  return options;
}

std::unique_ptr<Executable> CompileOnDevice(const Graph& model, const CompileOptions& options) {
  auto backend = MakeCudaBackend({.autotunes = false});
  EXPECT_TRUE(backend.ok()) << backend.status();
  auto executable = (*backend)->Compile(model, {.momentum = 0.9}, options);
  EXPECT_TRUE(executable.ok()) << executable.status();
  testing::RandomizeState(5, **executable);
  return *std::move(executable);
}

// The communicator outlives the executable.
std::shared_ptr<DeviceSum> SumOver(NcclCommunicator& communicator) {
  return trainer::MakeNcclSum(
      std::shared_ptr<NcclCommunicator>(&communicator, [](NcclCommunicator*) {}));
}

// Compiles the rank's part of the steps, with sums over the communicator.
absl::StatusOr<std::unique_ptr<Executable>> CompileRank(const Steps& steps,
                                                        NcclCommunicator& communicator) {
  auto executable = CompileOnDevice(steps.model, OptionsOfRank(steps, communicator.rank()));
  TY_RETURN_IF_ERROR(executable->SumStatisticsBy(SumOver(communicator)));
  return executable;
}

// Enqueues the rank's part of a step. All ranks weigh alike, so that they have equal statistics.
absl::Status EnqueueStep(Executable& executable, const Steps& steps, size_t step, int rank,
                         const ReadyCallback& on_ready) {
  int64_t begin = 0;
  int64_t all = 0;
  for (const int64_t rows : steps.rows[step]) all += rows;
  for (int before = 0; before < rank; ++before) {
    begin += steps.rows[step][static_cast<size_t>(before)];
  }
  const int64_t rows = steps.rows[step][static_cast<size_t>(rank)];
  if (rows == 0) return executable.TakePartInStatistics(on_ready);
  const TestBatch batch = testing::RandomBatch(step, steps.model, all).Rows(begin, begin + rows);
  return executable.Accumulate(batch.batch(), 0.5, on_ready);
}

// Runs a step on one rank, with an update, and appends the sums before it.
absl::Status RunStep(Executable& executable, const Steps& steps, size_t step, int rank,
                     SumsByStep& sums) {
  TY_RETURN_IF_ERROR(EnqueueStep(executable, steps, step, rank, nullptr));
  TY_RETURN_IF_ERROR(executable.Synchronize());
  sums.push_back(testing::ReadReduction(executable));
  return executable.Update(0.01).status();
}

absl::Status RunSteps(Executable& executable, const Steps& steps, int rank, SumsByStep& sums) {
  for (size_t step = 0; step < steps.rows.size(); ++step) {
    TY_RETURN_IF_ERROR(RunStep(executable, steps, step, rank, sums));
  }
  return absl::OkStatus();
}

std::vector<SumsByStep> ByTheHost(Steps steps) {
  const int ranks = static_cast<int>(steps.rows[0].size());
  OrderedSum sum(ranks);
  std::vector<SumsByStep> sums(static_cast<size_t>(ranks));
  const auto statuses = parallel::RunPlaces(ranks, [&](const parallel::Place& place) {
    CheckCuda(cudaSetDevice(place.rank));
    Steps mine = steps;
    mine.options.sum_statistics = [&sum, rank = place.rank](absl::Span<double> values) {
      return sum.Sum(rank, values);
    };
    const auto executable = CompileOnDevice(steps.model, OptionsOfRank(mine, place.rank));
    return RunSteps(*executable, mine, place.rank, sums[static_cast<size_t>(place.rank)]);
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  return sums;
}

std::vector<SumsByStep> ByTheDevices(const Steps& steps) {
  const int ranks = static_cast<int>(steps.rows[0].size());
  std::vector<SumsByStep> sums(static_cast<size_t>(ranks));
  const auto statuses = parallel::RunNcclGang(ranks, [&](NcclCommunicator& communicator) {
    const int rank = communicator.rank();
    TY_ASSIGN_OR_RETURN(const auto executable, CompileRank(steps, communicator));
    return RunSteps(*executable, steps, rank, sums[static_cast<size_t>(rank)]);
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  return sums;
}

Graph Convnet() {
  return *BuildConvnet({.input = {2, 9, 9}, .channels = {4, 6}, .classes = 5, .batch_norm = true});
}

Graph OneValue() {
  GraphBuilder builder({3, 1, 1});
  builder.SoftmaxCrossEntropy(
      builder.Linear("fc", builder.Flatten(builder.BatchNorm("bn", builder.input())), 2));
  return *std::move(builder).Build();
}

class RankSumsTest : public ::testing::Test {
 protected:
  RankSumsTest() { cuda_on_cpu::SetDeviceCount(cuda_on_cpu::kMaxDevices); }
  ~RankSumsTest() override { cuda_on_cpu::SetSeed(1); }
};

// Uneven rows, ranks without rows, and channels that fill no vector.
TEST_F(RankSumsTest, HaveTheBitsOfTheHostsSums) {
  const Graph large =
      *BuildConvnet({.input = {1, 38, 38}, .channels = {9, 4}, .classes = 5, .batch_norm = true});
  const std::vector<Steps> cases = {
      {Convnet(), {{3, 1, 2}, {2, 0, 1}, {0, 0, 4}, {3, 1, 2}}},
      {Convnet(), {{3, 1}}, {.precision = Precision::kBf16}},
      {large, {{4, 3}, {2, 0}}},
      {testing::Residuals(6), {{5, 3}, {1, 4}}, {.passes = {.recompute = true}}},
      {testing::Inceptions({16, 24, 16, 20}), {{2, 3, 1}}}};
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    cuda_on_cpu::SetSeed(i + 1);
    EXPECT_EQ(ByTheDevices(cases[i]), ByTheHost(cases[i]));
  }
}

// A rank without rows makes its few calls one by one.
TEST_F(RankSumsTest, OfRecordedStepsHaveTheBitsOfCallsOneByOne) {
  const std::vector<Steps> cases = {
      {Convnet(), {{3, 1, 2}, {3, 1, 2}, {3, 1, 2}}},
      {Convnet(), {{3, 0}, {3, 0}, {0, 3}, {3, 0}, {0, 3}, {0, 3}}},
      {testing::Residuals(6), {{2, 3}, {2, 3}, {2, 3}}, {.passes = {.recompute = true}}}};
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    cuda_on_cpu::SetSeed(i + 1);
    Steps one_by_one = cases[i];
    one_by_one.options.captures = false;
    const std::vector<SumsByStep> expected = ByTheDevices(one_by_one);
    EXPECT_EQ(ByTheDevices(cases[i]), expected);
    EXPECT_EQ(ByTheHost(cases[i]), expected);
  }
}

// Graphs that were recorded by then pack their numbers for the host.
TEST_F(RankSumsTest, MayMoveToTheDevicesAfterSomeSteps) {
  const Steps steps = {Convnet(), {{3, 1, 2}, {3, 1, 2}, {3, 1, 2}, {3, 1, 2}}};
  OrderedSum by_host(3);
  std::vector<SumsByStep> sums(3);
  const auto statuses =
      parallel::RunNcclGang(3, [&](NcclCommunicator& communicator) -> absl::Status {
        const int rank = communicator.rank();
        Steps mine = steps;
        mine.options.sum_statistics = [&by_host, rank](absl::Span<double> values) {
          return by_host.Sum(rank, values);
        };
        const auto executable = CompileOnDevice(steps.model, OptionsOfRank(mine, rank));
        for (size_t step = 0; step < steps.rows.size(); ++step) {
          if (step == 2) TY_RETURN_IF_ERROR(executable->SumStatisticsBy(SumOver(communicator)));
          TY_RETURN_IF_ERROR(
              RunStep(*executable, mine, step, rank, sums[static_cast<size_t>(rank)]));
        }
        return absl::OkStatus();
      });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  EXPECT_EQ(sums, ByTheHost(steps));
}

// Returns what two ranks launch in the last of three equal steps, whose graphs are there. There is
// no sum on the devices if `sums_on_device` is false.
cuda_on_cpu::HostLaunches LaunchesOfAStep(const Steps& steps, bool sums_on_device) {
  OrderedSum by_host(2);
  std::barrier<> barrier(2);
  cuda_on_cpu::HostLaunches launches;
  const auto statuses =
      parallel::RunNcclGang(2, [&](NcclCommunicator& communicator) -> absl::Status {
        const int rank = communicator.rank();
        CompileOptions options = OptionsOfRank(steps, rank);
        options.sum_statistics = [&by_host, rank](absl::Span<double> values) {
          return by_host.Sum(rank, values);
        };
        const auto executable = CompileOnDevice(steps.model, options);
        if (sums_on_device) {
          TY_RETURN_IF_ERROR(executable->SumStatisticsBy(SumOver(communicator)));
        }
        for (int step = 0; step < 3; ++step) {
          barrier.arrive_and_wait();
          const cuda_on_cpu::HostLaunches before = cuda_on_cpu::LaunchesByTheHost();
          barrier.arrive_and_wait();
          absl::Status status = EnqueueStep(*executable, steps, 0, rank, nullptr);
          status.Update(executable->Update(0.01).status());
          barrier.arrive_and_wait();
          const cuda_on_cpu::HostLaunches after = cuda_on_cpu::LaunchesByTheHost();
          if (rank == 0) {
            launches = {after.kernels - before.kernels, after.graphs - before.graphs};
          }
          TY_RETURN_IF_ERROR(status);
        }
        return absl::OkStatus();
      });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  return launches;
}

// Returns how many kernels a rank's step takes.
int64_t KernelsPlanned(const Steps& steps) {
  const auto backend = MakeCudaBackend({.autotunes = false});
  EXPECT_TRUE(backend.ok()) << backend.status();
  const auto plan = (*backend)->Plan(steps.model, {.momentum = 0.9}, OptionsOfRank(steps, 0));
  EXPECT_TRUE(plan.ok()) << plan.status();
  int64_t kernels = 0;
  for (const CallWork& call : plan->work) kernels += call.kernels;
  return kernels;
}

// Each of the two batch norms has a sum forward and one backward. Graphs lie before, between and
// after them, and one makes the update.
TEST_F(RankSumsTest, LieBetweenGraphs) {
  constexpr int kSums = 4;
  const Steps steps = {Convnet(), {{3, 1}}};
  for (const bool sums_on_device : {true, false}) {
    SCOPED_TRACE(sums_on_device);
    const cuda_on_cpu::HostLaunches launches = LaunchesOfAStep(steps, sums_on_device);
    EXPECT_EQ(launches.graphs, 2 * (kSums + 1 + 1));
    EXPECT_EQ(launches.kernels, sums_on_device ? 2 * kSums : 0);
  }
  // A rank without rows packs its numbers for each sum, and merges the moments, by itself.
  const cuda_on_cpu::HostLaunches uneven = LaunchesOfAStep({Convnet(), {{3, 0}}}, true);
  EXPECT_EQ(uneven.graphs, kSums + 1 + 2 * 1);
  EXPECT_EQ(uneven.kernels, 2 * kSums + kSums + kSums / 2);

  Steps one_by_one = steps;
  one_by_one.options.captures = false;
  const cuda_on_cpu::HostLaunches launches = LaunchesOfAStep(one_by_one, true);
  EXPECT_EQ(launches.graphs, 0);
  EXPECT_EQ(launches.kernels, 2 * KernelsPlanned(steps));
}

// All ranks weigh alike, so that their updates fold the same statistics into the running ones.
TEST_F(RankSumsTest, AreTheSameOnAllRanks) {
  const Steps steps = {Convnet(), {{3, 1, 2}, {1, 1, 5}}};
  std::vector<Values> running(3);
  const auto statuses = parallel::RunNcclGang(3, [&](NcclCommunicator& communicator) {
    const int rank = communicator.rank();
    TY_ASSIGN_OR_RETURN(const auto executable, CompileRank(steps, communicator));
    SumsByStep sums;
    absl::Status status = RunSteps(*executable, steps, rank, sums);
    for (const StateTensor& tensor : executable->state()) {
      if (tensor.kind != StateTensor::Kind::kBuffer) continue;
      const Values values = testing::ReadState(*executable, tensor.name);
      Values& mine = running[static_cast<size_t>(rank)];
      mine.insert(mine.end(), values.begin(), values.end());
    }
    return status;
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
  EXPECT_EQ(running[0].size(), 2U * (4 + 6));
  EXPECT_EQ(running[1], running[0]);
  EXPECT_EQ(running[2], running[0]);
}

TEST_F(RankSumsTest, LetTheHostContinue) {
  const Steps steps = {Convnet(), {{3, 0}}};
  std::barrier<> barrier(2);
  const auto statuses =
      parallel::RunNcclGang(2, [&](NcclCommunicator& communicator) -> absl::Status {
        const int rank = communicator.rank();
        TY_ASSIGN_OR_RETURN(const auto executable, CompileRank(steps, communicator));
        // The first step compiles and packs what it needs.
        absl::Status status = EnqueueStep(*executable, steps, 0, rank, nullptr);
        status.Update(executable->Synchronize());
        barrier.arrive_and_wait();
        // The emulated device runs while a host waits for it, and only a little otherwise.
        const int64_t before = cuda_on_cpu::KernelsLaunched();
        barrier.arrive_and_wait();
        status.Update(EnqueueStep(*executable, steps, 0, rank, nullptr));
        barrier.arrive_and_wait();
        const int64_t begun = cuda_on_cpu::KernelsLaunched() - before;
        barrier.arrive_and_wait();
        status.Update(executable->Synchronize());
        barrier.arrive_and_wait();
        EXPECT_LT(2 * begun, cuda_on_cpu::KernelsLaunched() - before);
        return status;
      });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
}

// Gradients travel on another stream as soon as they are ready, over the same communicator, while
// backward asks for further statistics. The rank without rows must keep the others' order. If the
// devices took the sums in different orders, they would wait for each other.
TEST_F(RankSumsTest, KeepTheirOrderAmongTheSumsOfGradients) {
  const Steps steps = {testing::Residuals(6), {{3, 1, 2}, {2, 0, 1}, {2, 0, 1}, {2, 0, 1}}};
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    // Steps are recorded if it is known where sums must leave.
    const bool is_recorded = seed > 3;
    cuda_on_cpu::SetSeed(seed);
    std::vector<SumsByStep> summed(3);
    std::vector<int> ranges(3);
    const auto statuses =
        parallel::RunNcclGang(3, [&](NcclCommunicator& communicator) -> absl::Status {
          const int rank = communicator.rank();
          const auto at = static_cast<size_t>(rank);
          TY_ASSIGN_OR_RETURN(const auto executable, CompileRank(steps, communicator));
          parallel::OwnedStream stream;
          parallel::OwnedEvent ready;
          parallel::OwnedEvent done;
          TY_RETURN_IF_ERROR(stream.Create());
          TY_RETURN_IF_ERROR(ready.Create());
          TY_RETURN_IF_ERROR(done.Create());
          auto* const compute = static_cast<cudaStream_t>(executable->device_queue());
          const auto end = static_cast<int64_t>(executable->reduction().size());
          if (is_recorded) executable->set_ready_ends({end / 3, end / 2, end});
          for (size_t step = 0; step < steps.rows.size(); ++step) {
            absl::Status status;
            const auto sum = [&](int64_t offset, int64_t count) {
              ++ranges[at];
              CheckCuda(cudaEventRecord(ready.get(), compute));
              CheckCuda(cudaStreamWaitEvent(stream.get(), ready.get(), 0));
              status.Update(communicator.EnqueueAllReduce(
                  executable->reduction().subspan(static_cast<size_t>(offset),
                                                  static_cast<size_t>(count)),
                  stream.get()));
            };
            TY_RETURN_IF_ERROR(EnqueueStep(*executable, steps, step, rank, sum));
            TY_RETURN_IF_ERROR(status);
            CheckCuda(cudaEventRecord(done.get(), stream.get()));
            CheckCuda(cudaStreamWaitEvent(compute, done.get(), 0));
            TY_RETURN_IF_ERROR(communicator.Await(done.get()));
            TY_RETURN_IF_ERROR(executable->Synchronize());
            summed[at].push_back(testing::ReadReduction(*executable));
            TY_RETURN_IF_ERROR(executable->Update(0.01).status());
          }
          return absl::OkStatus();
        });
    ASSERT_THAT(statuses, Each(absl::OkStatus()));
    EXPECT_GT(ranges[0], 8);
    EXPECT_THAT(ranges, Each(ranges[0]));
    EXPECT_EQ(summed[1], summed[0]);
    EXPECT_EQ(summed[2], summed[0]);
    // The first step's sums are those of all ranks; later states differ from those of RunSteps.
    const auto alone = ByTheHost({steps.model, {steps.rows[0]}});
    Values expected(summed[0][0].size(), 0);
    for (const SumsByStep& of_rank : alone) {
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += of_rank[0][i];
    }
    testing::ExpectNear(summed[0][0], expected, 1e-6, "sums");
  }
}

// The rank stops at once, or when the others launch graphs.
TEST_F(RankSumsTest, ARankThatDoesNotCallIsNamedInTime) {
  const Steps steps = {Convnet(), {{3, 1}}};
  for (const int steps_before : {0, 2}) {
    SCOPED_TRACE(steps_before);
    const auto statuses =
        parallel::RunNcclGang(2, [&](NcclCommunicator& communicator) -> absl::Status {
          const int rank = communicator.rank();
          TY_ASSIGN_OR_RETURN(const auto executable, CompileRank(steps, communicator));
          communicator.set_timeout(absl::Minutes(1));
          for (int step = 0; step < steps_before; ++step) {
            TY_RETURN_IF_ERROR(EnqueueStep(*executable, steps, 0, rank, nullptr));
            TY_RETURN_IF_ERROR(executable->Update(0.01).status());
          }
          if (rank == 1) return absl::OkStatus();
          communicator.set_timeout(absl::Milliseconds(100));
          absl::Status status = EnqueueStep(*executable, steps, 0, rank, nullptr);
          EXPECT_EQ(executable->Synchronize(), communicator.Await(nullptr)) << "is not broken";
          return status;
        });
    EXPECT_EQ(ErrorReason(statuses[0]), "COLLECTIVE_TIMEOUT") << statuses[0];
    EXPECT_THAT(
        std::string(statuses[0].message()),
        AllOf(HasSubstr("bn"), HasSubstr(absl::StrCat("rank 0: all_reduce ", 1 + 4 * steps_before,
                                                      ": a peer did not"))));
  }
}

// The host learns of it where it waits: for everything, or for an update.
TEST_F(RankSumsTest, ARankThatIsLostLaterEndsTheWait) {
  const Steps steps = {Convnet(), {{3, 1}}};
  for (const auto& [waits_for_update, steps_before] :
       std::vector<std::pair<bool, int>>{{false, 0}, {true, 0}, {false, 2}, {true, 2}}) {
    SCOPED_TRACE(absl::StrCat(waits_for_update, " ", steps_before));
    std::barrier<> barrier(2);
    const auto statuses =
        parallel::RunNcclGang(2, [&](NcclCommunicator& communicator) -> absl::Status {
          const int rank = communicator.rank();
          TY_ASSIGN_OR_RETURN(const auto executable, CompileRank(steps, communicator));
          for (int step = 0; step < steps_before; ++step) {
            TY_RETURN_IF_ERROR(EnqueueStep(*executable, steps, 0, rank, nullptr));
            TY_RETURN_IF_ERROR(executable->Update(0.01).status());
          }
          TY_RETURN_IF_ERROR(EnqueueStep(*executable, steps, 0, rank, nullptr));
          if (waits_for_update) TY_RETURN_IF_ERROR(executable->StartUpdate(0.01));
          barrier.arrive_and_wait();
          cuda_on_cpu::nccl::BreakAsynchronously(communicator.handle(), ncclRemoteError);
          return waits_for_update ? executable->FinishUpdate().status() : executable->Synchronize();
        });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(ErrorReason(status), "PEER_LOST") << status;
      EXPECT_THAT(
          std::string(status.message()),
          HasSubstr(absl::StrCat("all_reduce ", 4 * (steps_before + 1), ": a peer was lost")));
    }
    EXPECT_EQ(cuda_on_cpu::nccl::LiveCommunicators(), 0);
  }
}

TEST_F(RankSumsTest, OfASingleValueAreRefusedOnEveryRank) {
  const Steps steps = {OneValue(), {{1, 0}}};
  const auto statuses =
      parallel::RunNcclGang(2, [&](NcclCommunicator& communicator) -> absl::Status {
        const int rank = communicator.rank();
        TY_ASSIGN_OR_RETURN(const auto executable, CompileRank(steps, communicator));
        TY_RETURN_IF_ERROR(EnqueueStep(*executable, steps, 0, rank, nullptr));
        return executable->Synchronize();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'bn'"), HasSubstr("1 values")));
  }
}

// The host reads what a step has found after the device has gone on to the next one.
TEST_F(RankSumsTest, EachStepIsRefusedForItsOwnNumberOfValues) {
  const std::vector<std::vector<std::vector<int64_t>>> cases = {
      {{1, 0}, {0, 0}}, {{0, 0}, {1, 0}}, {{2, 1}, {0, 1}}, {{1, 0}, {2, 1}}};
  for (const std::vector<std::vector<int64_t>>& rows : cases) {
    SCOPED_TRACE(::testing::PrintToString(rows));
    const Steps steps = {OneValue(), rows};
    const auto statuses =
        parallel::RunNcclGang(2, [&](NcclCommunicator& communicator) -> absl::Status {
          const int rank = communicator.rank();
          TY_ASSIGN_OR_RETURN(const auto executable, CompileRank(steps, communicator));
          for (size_t step = 0; step < rows.size(); ++step) {
            TY_RETURN_IF_ERROR(EnqueueStep(*executable, steps, step, rank, nullptr));
            TY_RETURN_IF_ERROR(executable->StartUpdate(0.01));
          }
          CheckCuda(cudaStreamSynchronize(static_cast<cudaStream_t>(executable->device_queue())));
          for (const std::vector<int64_t>& of_step : rows) {
            const int64_t values = of_step[0] + of_step[1];
            const absl::Status status = executable->FinishUpdate().status();
            EXPECT_EQ(status.ok(), values >= 2) << status;
            if (values >= 2) continue;
            EXPECT_THAT(std::string(status.message()),
                        AllOf(HasSubstr("'bn'"), HasSubstr(absl::StrCat(" ", values, " values"))));
          }
          return executable->Synchronize();
        });
    EXPECT_THAT(statuses, Each(absl::OkStatus()));
  }
}

TEST_F(RankSumsTest, AreOnlyForExecutablesThatAskForThem) {
  const auto statuses =
      parallel::RunNcclGang(1, [&](NcclCommunicator& communicator) -> absl::Status {
        const auto executable = CompileOnDevice(Convnet(), {.max_rows = 2});
        EXPECT_EQ(executable->SumStatisticsBy(SumOver(communicator)).code(),
                  absl::StatusCode::kFailedPrecondition);
        return absl::OkStatus();
      });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
}

}  // namespace
}  // namespace trainyard::engine
