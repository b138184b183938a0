// Tests that workers that providers could bring are counted on, and asked for by what would run
// there.
#include <gmock/gmock.h>

#include "common/base/errors.h"
#include "tests/unit/server/core/yard/yard_fixture.h"

namespace trainyard::core {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class YardPossible : public YardTest {
 protected:
  YardPossible() { Join("lab-1", 2); }

  void Offer(int devices, int32_t count, const std::string& user = "") {
    PossibleWorkers possible;
    possible.provider = "cluster";
    possible.worker.devices = Cpus(devices);
    possible.user = user;
    possible.count = count;
    TY_CHECK_OK(Apply(SetPossibleWorkers{{possible}}));
  }
  std::map<JobId, std::set<int32_t>> Wanted() const { return yard_->WantedOf("cluster", now_); }
  absl::Status TryStrict(int32_t devices) {
    Submission submission = Spec(devices);
    submission.wait_for_devices = false;
    return yard_->Admit(submission, now_).status();
  }
};

TEST_F(YardPossible, NothingIsWantedWhileThePoolHasRoom) {
  Offer(4, 2);
  Submit(2);
  EXPECT_THAT(Wanted(), IsEmpty());
}

TEST_F(YardPossible, JobsThatWaitSayHowManyWorkersTheyWouldUse) {
  Offer(2, 3);
  Submit(2);  // runs on lab-1
  const JobId gang = Submit(4);
  const JobId small = Submit(1);
  const JobId other = Submit(1);
  const auto wanted = Wanted();
  ASSERT_THAT(wanted, SizeIs(3));
  EXPECT_THAT(wanted.at(gang), SizeIs(2));
  EXPECT_EQ(wanted.at(small), wanted.at(other)) << "both fit on one worker";
  EXPECT_THAT(yard_->Explain(small, now_).reasons,
              Contains(HasSubstr("provider cluster could bring workers")));
}

TEST_F(YardPossible, MoreThanTheProviderMayBringIsNotWanted) {
  Offer(2, 1);
  Submit(2);
  Submit(2);
  Submit(2);
  EXPECT_THAT(Wanted(), SizeIs(1));
  Offer(2, 0);
  EXPECT_THAT(Wanted(), IsEmpty());
}

TEST_F(YardPossible, WorkersOfOneUserAreNotForOthers) {
  Offer(2, 2, "bert");
  Submit(2);
  Submission of_anna = Spec(2);
  Submit(of_anna);
  Submission of_bert = Spec(2);
  of_bert.user = "bert";
  const JobId job = Submit(of_bert);
  EXPECT_THAT(Wanted(), ElementsAre(Pair(job, ElementsAre(0))));
}

TEST_F(YardPossible, JobsOnDataThatTheyDoNotFindDoNotWantThem) {
  ASSERT_TRUE(TellDatasets("lab-1", {}).ok());
  PossibleWorkers possible;
  possible.provider = "cluster";
  possible.worker.devices = Cpus(2);
  possible.count = 4;
  TY_CHECK_OK(Apply(SetPossibleWorkers{{possible}}));
  Submission on_cifar = Spec(1);
  on_cifar.demand.dataset = "cifar10";
  on_cifar.demand.data_digest = "xxh3-128:1";
  const JobId cifar = Submit(on_cifar);
  EXPECT_THAT(Wanted(), ElementsAre(Pair(cifar, SizeIs(1)))) << "nobody has said what they find";
  WorkerDatasets datasets;
  datasets.digests["mnist"] = "";
  possible.datasets = std::make_shared<const WorkerDatasets>(datasets);
  TY_CHECK_OK(Apply(SetPossibleWorkers{{possible}}));
  EXPECT_THAT(Wanted(), IsEmpty());
  on_cifar.wait_for_devices = false;
  const absl::Status refused = yard_->Admit(on_cifar, now_).status();
  EXPECT_EQ(ErrorReason(refused), error::kCannotRun);
  EXPECT_THAT(refused.message(), HasSubstr("the data set cifar10"));
  datasets.digests["cifar10"] = "";
  possible.datasets = std::make_shared<const WorkerDatasets>(datasets);
  TY_CHECK_OK(Apply(SetPossibleWorkers{{possible}}));
  EXPECT_THAT(Wanted(), ElementsAre(Pair(cifar, SizeIs(1)))) << "of any contents";
  EXPECT_TRUE(yard_->Admit(on_cifar, now_).ok());
}

TEST_F(YardPossible, AJobThatNeedsThemIsNotRefused) {
  EXPECT_EQ(ErrorReason(TryStrict(4)), error::kCannotRun);
  Offer(2, 1);
  EXPECT_TRUE(TryStrict(4).ok());
  const absl::Status refused = TryStrict(5);
  EXPECT_THAT(refused.message(), HasSubstr("(lab-1: 2, provider cluster: 2)"));
  Restart();
  EXPECT_EQ(ErrorReason(TryStrict(4)), error::kCannotRun) << "it is said again after a start";
}

}  // namespace
}  // namespace trainyard::core
