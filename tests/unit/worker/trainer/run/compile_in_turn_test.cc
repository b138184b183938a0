// Tests which ranks measure kernels, in which order, and whose choices the others get, over
// communicators in one process.
#include "worker/trainer/run/compile_in_turn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/worker/parallel/gang.h"

namespace trainyard::trainer {
namespace {

using parallel::Communicator;
using parallel::LocalTransport;
using parallel::RunGang;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// Notes what the ranks of a gang do: "2 measures", "2 has measured", "3 takes 'of 2'".
class Record {
 public:
  void Add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  const std::vector<std::string>& lines() const { return lines_; }
  std::vector<std::string> Takes() const {
    std::vector<std::string> takes;
    for (const std::string& line : lines_) {
      if (absl::StrContains(line, "takes")) takes.push_back(line);
    }
    std::sort(takes.begin(), takes.end());
    return takes;
  }
  size_t PlaceOf(const std::string& line) const {
    const auto found = std::find(lines_.begin(), lines_.end(), line);
    EXPECT_NE(found, lines_.end()) << line;
    return static_cast<size_t>(found - lines_.begin());
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Runs a gang in which rank r does ranks[r]. A rank that measures chooses "of r".
std::vector<absl::Status> CompileGang(const std::vector<MeasuredWork>& ranks, Record& record,
                                      int failing_rank = -1) {
  return RunGang(LocalTransport(), static_cast<int>(ranks.size()), [&](Communicator& host) {
    const int rank = host.rank();
    return CompileInTurn(host, ranks[static_cast<size_t>(rank)],
                         [&](const std::string& choices) -> absl::StatusOr<std::string> {
                           if (!choices.empty()) {
                             record.Add(absl::StrCat(rank, " takes '", choices, "'"));
                             return choices;
                           }
                           record.Add(absl::StrCat(rank, " measures"));
                           if (rank == failing_rank) return absl::InternalError("no kernel");
                           record.Add(absl::StrCat(rank, " has measured"));
                           return absl::StrCat("of ", rank);
                         });
  });
}

void ExpectCompiled(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST(MeasuringRounds, DevicesMeasureAtTheSameTimeAndTheRanksOfOneInTurn) {
  // Two pipelines of two stages on four devices, on two, and on one.
  EXPECT_THAT(MeasuringRounds({{"0", "a"}, {"1", "b"}, {"0", "c"}, {"1", "d"}}),
              ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(MeasuringRounds({{"0", "a"}, {"1", "a"}, {"0", "b"}, {"1", "b"}}),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(MeasuringRounds({{"0", "a"}, {"1", "a"}, {"0", "a"}, {"1", "a"}}),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
  // The first two stages share a device, and the last two another one.
  EXPECT_THAT(MeasuringRounds({{"0", "a"}, {"1", "a"}, {"2", "b"}, {"3", "b"}}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(MeasuringRounds({}), IsEmpty());
}

// The gang is of two types of GPU.
TEST(CompileInTurn, OneRankOfEachTypeChoosesForThoseOfItsType) {
  Record record;
  ExpectCompiled(CompileGang(
      {{"0 h200", "a"}, {"0 a100", "b"}, {"0 a100", "c"}, {"0 h200", "d"}, {"0 h200", ""}},
      record));
  EXPECT_EQ(record.lines().size(), 7U);
  EXPECT_THAT(record.Takes(), ElementsAre("2 takes 'of 1'", "3 takes 'of 0'", "4 takes 'of 0'"));
}

// Both stages of both pipelines are on one GPU.
TEST(CompileInTurn, StagesThatShareADeviceMeasureOneAfterTheOther) {
  for (int i = 0; i < 20; ++i) {
    Record record;
    ExpectCompiled(CompileGang({{"0", "a"}, {"1", "a"}, {"0", "a"}, {"1", "a"}}, record));
    EXPECT_LT(record.PlaceOf("0 has measured"), record.PlaceOf("1 measures"));
    EXPECT_THAT(record.Takes(), ElementsAre("2 takes 'of 0'", "3 takes 'of 1'"));
    for (const std::string& take : record.Takes()) {
      EXPECT_GT(record.PlaceOf(take), record.PlaceOf("1 has measured"));
    }
  }
}

TEST(CompileInTurn, ARankAloneMeasuresForItself) {
  Record record;
  ExpectCompiled(CompileGang({{"0", "a"}}, record));
  EXPECT_THAT(record.lines(), ElementsAre("0 measures", "0 has measured"));
}

TEST(CompileInTurn, ARankThatCannotCompileEndsAllTheOthers) {
  for (const int failing : {0, 1}) {
    Record record;
    const std::vector<absl::Status> statuses =
        CompileGang({{"0", "a"}, {"1", "a"}, {"0", "a"}}, record, failing);
    for (size_t rank = 0; rank < statuses.size(); ++rank) {
      EXPECT_THAT(statuses[rank], Not(absl::OkStatus())) << "rank " << rank;
    }
    EXPECT_EQ(statuses[static_cast<size_t>(failing)].message(), "no kernel");
    EXPECT_THAT(record.Takes(), IsEmpty());
  }
}

}  // namespace
}  // namespace trainyard::trainer
