// Tests what the ranks of a gang exchange before their steps, over communicators in one process.
#include "worker/trainer/run/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/parallel/gang.h"

namespace trainyard::trainer {
namespace {

using parallel::Communicator;
using parallel::LocalTransport;
using parallel::RunGang;
using ::testing::ElementsAre;
using ::testing::Not;

void ExpectOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

// Numbers carry the text, so there are lengths around the size of one, and bytes that are no
// numbers.
TEST(BroadcastText, GivesTheTextOfTheRootToEveryRank) {
  const std::vector<std::string> texts = {"",
                                          "a",
                                          "seven b",
                                          "8 bytes.",
                                          "9 bytes..",
                                          std::string(1000, '\xff'),
                                          std::string("\0x\0", 3)};
  for (const std::string& text : texts) {
    for (const int root : {0, 2}) {
      ExpectOk(RunGang(LocalTransport(), 3, [&](Communicator& communicator) -> absl::Status {
        const int rank = communicator.rank();
        const auto got =
            BroadcastText(communicator, rank == root ? text : absl::StrCat("of rank ", rank), root);
        EXPECT_TRUE(got.ok()) << got.status();
        if (got.ok()) {
          EXPECT_EQ(*got, text) << "rank " << rank << ", root " << root;
        }
        return got.status();
      }));
    }
  }
}

// The rank that measures for others may fail while they wait for its choices.
TEST(BroadcastText, FailsIfTheRootIsGone) {
  const std::vector<absl::Status> statuses =
      RunGang(LocalTransport(), 3, [](Communicator& communicator) -> absl::Status {
        if (communicator.rank() == 0) return absl::ResourceExhaustedError("no memory to compile");
        return BroadcastText(communicator, "", 0).status();
      });
  for (const int rank : {1, 2}) {
    EXPECT_THAT(statuses[static_cast<size_t>(rank)], Not(absl::OkStatus())) << "rank " << rank;
  }
}

TEST(GatherNames, CutsOffLongOnes) {
  ExpectOk(RunGang(LocalTransport(), 2, [](Communicator& communicator) -> absl::Status {
    const auto names =
        GatherNames(communicator, communicator.rank() == 0 ? "cpu" : std::string(200, 'x'));
    EXPECT_TRUE(names.ok()) << names.status();
    if (names.ok()) {
      EXPECT_THAT(*names, ElementsAre("cpu", std::string(kGatheredNameMax, 'x')));
    }
    return names.status();
  }));
}

TEST(GatherNumbers, KeepsEveryBit) {
  const double values[] = {-0.0, std::numeric_limits<double>::denorm_min(), 1e300};
  ExpectOk(RunGang(LocalTransport(), 2, [&](Communicator& communicator) -> absl::Status {
    const double mine[] = {values[communicator.rank()], values[2]};
    const auto all = GatherNumbers(communicator, mine);
    EXPECT_TRUE(all.ok()) << all.status();
    if (all.ok()) {
      EXPECT_THAT(*all, ElementsAre(values[0], values[2], values[1], values[2]));
      EXPECT_TRUE(std::signbit((*all)[0]));
    }
    return all.status();
  }));
}

TEST(CheckAgreement, RefusesOtherFacts) {
  const std::vector<absl::Status> statuses =
      RunGang(LocalTransport(), 2, [](Communicator& communicator) {
        return CheckAgreement(communicator, absl::StrCat("rank ", communicator.rank()));
      });
  EXPECT_TRUE(absl::IsFailedPrecondition(statuses[1])) << statuses[1];
  ExpectOk(RunGang(LocalTransport(), 2, [](Communicator& communicator) {
    return CheckAgreement(communicator, "the same");
  }));
}

}  // namespace
}  // namespace trainyard::trainer
