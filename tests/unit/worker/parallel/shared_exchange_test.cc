// Runs the cases of exchanges over memory that ranks share, and cases in which the ranks are
// processes that end or stop.
#include "worker/parallel/shared/shared_exchange.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/parallel/exchange_cases.h"
#include "tests/unit/worker/parallel/shared_arena.h"
#include "worker/parallel/shm/shm_communicator.h"

namespace trainyard::parallel {
namespace {

using ::testing::HasSubstr;

// Ranks find each other like processes, though those of these cases are threads.
ExchangeKind Mapped() {
  const auto make = [](const ExchangeSetup& setup) -> absl::StatusOr<RankExchange> {
    TY_ASSIGN_OR_RETURN(auto arena,
                        Arena::Make(setup.elements, setup.slots, setup.gradient_elements));
    RankExchange made = MadeOf(arena);
    TY_ASSIGN_OR_RETURN(auto communicator, LocalTransport().connect(setup.place));
    TY_ASSIGN_OR_RETURN(
        SharedGang gang,
        ConnectSharedGang(arena->layout, AllMembers(setup.place.world_size), *communicator));
    made.exchange = MakeSharedExchange(std::move(gang), OptionsOf(setup));
    TY_RETURN_IF_ERROR(made.exchange->SetPlan(setup.plan, setup.term_slots));
    return made;
  };
  return {"shared", make};
}

INSTANTIATE_TEST_SUITE_P(Shared, ExchangeTest,
                         ::testing::Combine(::testing::Values(Mapped()),
                                            ::testing::Values(1, 2, 3, 4), ::testing::Bool()),
                         NameOfExchange);
INSTANTIATE_TEST_SUITE_P(Shared, ExchangeFaultTest, ::testing::Values(Mapped()),
                         NameOfExchangeKind);

constexpr int64_t kElements = 50000;
constexpr int64_t kGradients = 49000;
const std::vector<Bucket> kBuckets = {{0, 3000}, {3000, 40000}, {40000, 49000}, {49000, 50000}};
constexpr absl::Duration kPatience = absl::Seconds(30);

double ProcessorSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// Computes for this many seconds of processor time.
void Compute(double seconds) {
  for (const double end = ProcessorSeconds() + seconds; ProcessorSeconds() < end;) {
  }
}

// A rank in a process of its own.
struct ProcessRank {
  int rank = 0;
  std::shared_ptr<Arena> arena;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<GradientExchange> exchange;

  // Returns the term of element i: a small integer, so that sums are exact.
  static float Term(int rank, int64_t step, int64_t i) {
    return static_cast<float>((i * 7 + step * 13 + int64_t{rank} * 101) % 1000);
  }

  // Runs backward, which computes for `slow` seconds when the first bucket is ready, and reads the
  // parameters until its end.
  absl::Status Backward(int64_t step, double slow) {
    const std::vector<float> before(arena->parameters.begin(), arena->parameters.end());
    for (const Bucket& bucket : kBuckets) {
      for (int64_t i = bucket.begin; i < bucket.end; ++i) {
        arena->reduction[static_cast<size_t>(i)] = Term(rank, step, i);
      }
      if (bucket.end == kElements && arena->parameters != absl::MakeConstSpan(before)) {
        return absl::InternalError("somebody wrote to parameters that backward reads");
      }
      TY_RETURN_IF_ERROR(exchange->Ready(bucket.end));
      if (bucket.begin == 0) Compute(slow);
    }
    return absl::OkStatus();
  }

  absl::Status LandAndUpdate(size_t bucket) {
    TY_RETURN_IF_ERROR(exchange->Land(bucket));
    const Bucket own = exchange->OwnBlock(bucket);
    for (int64_t i = own.begin; i < std::min(own.end, kGradients); ++i) {
      const auto at = static_cast<size_t>(i);
      arena->parameters[at] += arena->reduction[at];
      arena->reduction[at] = 0;
    }
    return absl::OkStatus();
  }

  absl::Status Step(int64_t step, double slow = 0) {
    const double ballot = rank + 0.5;
    TY_RETURN_IF_ERROR(exchange->Begin(step, {&ballot, 1}));
    TY_RETURN_IF_ERROR(Backward(step, slow));
    for (size_t bucket = 0; bucket < kBuckets.size(); ++bucket) {
      TY_RETURN_IF_ERROR(LandAndUpdate(bucket));
      if (exchange->is_sharded()) TY_RETURN_IF_ERROR(exchange->Share(bucket));
    }
    std::vector<double> ballots(static_cast<size_t>(communicator->world_size()));
    TY_RETURN_IF_ERROR(exchange->End());
    TY_RETURN_IF_ERROR(exchange->Finish(absl::MakeSpan(ballots)));
    for (size_t of = 0; of < ballots.size(); ++of) {
      if (ballots[of] != static_cast<double>(of) + 0.5) return absl::InternalError("ballots");
    }
    return absl::OkStatus();
  }

  // Checks the parameters after `steps` steps.
  absl::Status Check(int64_t steps) const {
    for (int64_t i = 0; i < kGradients; ++i) {
      float expected = 0;
      for (int64_t step = 1; step <= steps; ++step) {
        for (int of = 0; of < communicator->world_size(); ++of) expected += Term(of, step, i);
      }
      if (arena->parameters[static_cast<size_t>(i)] != expected) {
        return absl::InternalError(absl::StrCat("parameter ", i, " differs"));
      }
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<ProcessRank> MakeProcessRank(const std::string& run_dir, int rank, int ranks,
                                            bool is_sharded) {
  ProcessRank made;
  made.rank = rank;
  TY_ASSIGN_OR_RETURN(made.arena, Arena::Make(kElements, 0, kGradients));
  TY_ASSIGN_OR_RETURN(made.communicator, ConnectShm({.rank = rank,
                                                     .world_size = ranks,
                                                     .run_dir = run_dir::RunDir(run_dir),
                                                     .connect_timeout = kPatience}));
  TY_ASSIGN_OR_RETURN(SharedGang gang,
                      ConnectSharedGang(made.arena->layout, AllMembers(ranks), *made.communicator));
  made.exchange = MakeSharedExchange(std::move(gang), {.buckets = kBuckets,
                                                       .gradient_elements = kGradients,
                                                       .is_sharded = is_sharded,
                                                       .timeout = kPatience});
  return made;
}

// Ranks from 1 on are child processes, which do `theirs`; rank 0 is the test itself.
class Children {
 public:
  using Work = std::function<absl::Status(ProcessRank&)>;

  Children(const std::string& run_dir, int ranks, bool is_sharded, const Work& theirs) {
    for (int rank = 1; rank < ranks; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        absl::StatusOr<ProcessRank> made = MakeProcessRank(run_dir, rank, ranks, is_sharded);
        const absl::Status status = made.ok() ? theirs(*made) : made.status();
        if (!status.ok()) absl::FPrintF(stderr, "rank %d: %s\n", rank, status.ToString());
        _exit(status.ok() ? 0 : 1);
      }
      pids_.push_back(child);
    }
  }
  ~Children() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  void ExpectAllWell() {
    for (const pid_t pid : pids_) {
      int status = 0;
      EXPECT_EQ(waitpid(pid, &status, 0), pid);
      EXPECT_EQ(status, 0);
    }
    pids_.clear();
  }

 private:
  std::vector<pid_t> pids_;
};

class SharedExchangeOfProcesses : public ::testing::TestWithParam<bool> {
 protected:
  std::string run_dir() const { return dir_.path(); }

  const testing::TempDir dir_;
};

TEST_P(SharedExchangeOfProcesses, SumsAndParametersAreThoseOfAllRanks) {
  constexpr int64_t kSteps = 40;
  const auto work = [](ProcessRank& rank) -> absl::Status {
    for (int64_t step = 1; step <= kSteps; ++step) {
      // Every rank is the slow one at times.
      TY_RETURN_IF_ERROR(rank.Step(step, step % 5 == rank.rank ? 0.003 : 0));
    }
    return rank.Check(kSteps);
  };
  Children children(run_dir(), 4, GetParam(), work);
  absl::StatusOr<ProcessRank> rank = MakeProcessRank(run_dir(), 0, 4, GetParam());
  ASSERT_TRUE(rank.ok()) << rank.status();
  EXPECT_EQ(work(*rank), absl::OkStatus());
  children.ExpectAllWell();
}

TEST_P(SharedExchangeOfProcesses, OneThatIsKilledIsNoticedAtOnce) {
  Children children(run_dir(), 2, GetParam(), [](ProcessRank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    TY_RETURN_IF_ERROR(rank.exchange->Begin(2, std::vector<double>{0}));
    TY_RETURN_IF_ERROR(rank.exchange->Ready(kBuckets[0].end));
    raise(SIGKILL);
    return absl::OkStatus();
  });
  absl::StatusOr<ProcessRank> rank = MakeProcessRank(run_dir(), 0, 2, GetParam());
  ASSERT_TRUE(rank.ok()) << rank.status();
  ASSERT_EQ(rank->Step(1), absl::OkStatus());
  const absl::Duration begin = Clock::Real()->Uptime();
  const absl::Status status = rank->Step(2);
  EXPECT_EQ(ErrorReason(status), "PEER_LOST") << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step 2, bucket "), HasSubstr(": rank 0: reduce "),
                    HasSubstr(": rank 1 was lost: its process has ended")));
  EXPECT_LT(Clock::Real()->Uptime() - begin, kPatience / 3);
  // The error stays.
  EXPECT_EQ(rank->Step(3), status);
}

TEST_P(SharedExchangeOfProcesses, OneThatIsStoppedTimesOut) {
  Children children(run_dir(), 2, GetParam(), [](ProcessRank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    raise(SIGSTOP);
    return absl::OkStatus();
  });
  absl::StatusOr<ProcessRank> rank = MakeProcessRank(run_dir(), 0, 2, GetParam());
  ASSERT_TRUE(rank.ok()) << rank.status();
  ASSERT_EQ(rank->Step(1), absl::OkStatus());
  rank->exchange->set_timeout(absl::Milliseconds(200));
  const absl::Status status = rank->Step(2);
  EXPECT_EQ(ErrorReason(status), "COLLECTIVE_TIMEOUT") << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("step 2, bucket 0: rank 0: reduce 5: rank 1 did not take part"));
}

INSTANTIATE_TEST_SUITE_P(Shared, SharedExchangeOfProcesses, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& of) {
                           return of.param ? "sharded" : "replicated";
                         });

TEST(SharedExchange, NamesTheParametersThatDoNotCome) {
  const testing::TempDir dir;
  Children children(dir.path(), 2, /*is_sharded=*/true, [](ProcessRank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.exchange->Begin(1, std::vector<double>{0}));
    TY_RETURN_IF_ERROR(rank.Backward(1, 0));
    for (size_t bucket = 0; bucket < kBuckets.size(); ++bucket) {
      TY_RETURN_IF_ERROR(rank.exchange->Land(bucket));
      if (bucket == 0) TY_RETURN_IF_ERROR(rank.exchange->Share(bucket));
    }
    raise(SIGKILL);
    return absl::OkStatus();
  });
  absl::StatusOr<ProcessRank> rank = MakeProcessRank(dir.path(), 0, 2, /*is_sharded=*/true);
  ASSERT_TRUE(rank.ok()) << rank.status();
  const absl::Status status = rank->Step(1);
  EXPECT_EQ(ErrorReason(status), "PEER_LOST") << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("step 1, bucket 2: rank 0: share 3: rank 1"));
}

// A rank that waits sleeps, and leaves the processor to those that compute.
TEST(SharedExchange, WaitsWithoutTheProcessor) {
  const testing::TempDir dir;
  Children children(dir.path(), 2, /*is_sharded=*/false, [](ProcessRank& rank) -> absl::Status {
    TY_RETURN_IF_ERROR(rank.Step(1));
    Compute(0.3);
    return rank.Step(2);
  });
  absl::StatusOr<ProcessRank> rank = MakeProcessRank(dir.path(), 0, 2, /*is_sharded=*/false);
  ASSERT_TRUE(rank.ok()) << rank.status();
  ASSERT_EQ(rank->Step(1), absl::OkStatus());
  const double before = ProcessorSeconds();
  ASSERT_EQ(rank->Step(2), absl::OkStatus());
  // Apart from waiting there is little to do.
  EXPECT_LT(ProcessorSeconds() - before,
            absl::ToDoubleSeconds(rank->exchange->stats().exposed) / 2 + 0.02);
  children.ExpectAllWell();
}

TEST(SharedExchange, RefusesBallotsThatAreTooLong) {
  const testing::TempDir dir;
  absl::StatusOr<ProcessRank> rank = MakeProcessRank(dir.path(), 0, 1, /*is_sharded=*/false);
  ASSERT_TRUE(rank.ok()) << rank.status();
  EXPECT_EQ(rank->exchange->Begin(1, std::vector<double>(65)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rank->exchange->Begin(1, std::vector<double>(64)), absl::OkStatus());
}

TEST(SharedGang, TellsAllRanksThatOneCannotShare) {
  const std::vector<absl::Status> statuses =
      RunGang(LocalTransport(), 3, [](Communicator& communicator) -> absl::Status {
        TY_ASSIGN_OR_RETURN(auto arena, Arena::Make(10, 0, 10));
        SharedArena layout = arena->layout;
        // This descriptor does not belong to the memory.
        if (communicator.rank() == 1) layout.fd = STDERR_FILENO;
        return ConnectSharedGang(layout, {4, 5, 6}, communicator).status();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 4 cannot map"));
  }
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("expected 80"));
}

TEST(SharedGang, TellsAllRanksThatTheMemoryOfOneIsNoFile) {
  const std::vector<absl::Status> statuses =
      RunGang(LocalTransport(), 2, [](Communicator& communicator) -> absl::Status {
        TY_ASSIGN_OR_RETURN(auto arena, Arena::Make(10, 0, 10));
        SharedArena layout = arena->layout;
        if (communicator.rank() == 0) layout.fd = -1;
        return ConnectSharedGang(layout, AllMembers(2), communicator).status();
      });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 cannot map"));
  }
}

}  // namespace
}  // namespace trainyard::parallel
