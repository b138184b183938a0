// Tests how a host decides how strictly ranks are kept apart, and the control groups of attempts.
#include "worker/agent/isolation.h"

#include <sys/stat.h>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/cgroup/fake_tree.h"
#include "worker/agent/attempt_groups.h"

namespace trainyard::agent {
namespace {

using run_dir::IsolationLevel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// Finds these programs alone.
std::function<std::string(const std::string&)> Only(const std::set<std::string>& programs) {
  return [programs](const std::string& name) {
    return programs.contains(name) ? "/usr/bin/" + name : "";
  };
}

IsolationLevel Chosen(const IsolationOffer& offer, IsolationLevel asked, bool has_image = false) {
  const auto chosen = ChooseIsolation(offer, asked, has_image);
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  return chosen.ok() ? chosen->level : IsolationLevel::kUnknown;
}

TEST(Isolation, WithoutAWishItIsAsStrictAsNobodyNotices) {
  EXPECT_EQ(Chosen({}, IsolationLevel::kUnknown), IsolationLevel::kProcess);
  EXPECT_EQ(Chosen({.has_cgroups = true}, IsolationLevel::kUnknown), IsolationLevel::kCgroup);
  EXPECT_EQ(Chosen({.sandbox = "/usr/bin/bwrap"}, IsolationLevel::kUnknown),
            IsolationLevel::kProcess);
  EXPECT_EQ(Chosen({.container_runtime = "podman", .container_program = "/usr/bin/podman"},
                   IsolationLevel::kProcess, /*has_image=*/true),
            IsolationLevel::kContainer);
}

TEST(Isolation, AWishIsMetOrRefused) {
  const IsolationOffer nothing;
  for (const IsolationLevel level :
       {IsolationLevel::kCgroup, IsolationLevel::kSandbox, IsolationLevel::kContainer}) {
    const auto refused = ChooseIsolation(nothing, level, false);
    EXPECT_EQ(ErrorReason(refused.status()), "ISOLATION_UNAVAILABLE");
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr(std::string(run_dir::IsolationName(level))));
  }
  const auto sandbox =
      ChooseIsolation({.sandbox = "/usr/bin/bwrap"}, IsolationLevel::kSandbox, false);
  ASSERT_TRUE(sandbox.ok());
  EXPECT_EQ(sandbox->program, "/usr/bin/bwrap");
}

TEST(Isolation, TheRuntimesHaveAnOrder) {
  const auto all = Only({"podman", "apptainer", "ch-run", "enroot", "bwrap"});
  EXPECT_EQ(FindIsolation(false, false, all).container_runtime, "podman");
  EXPECT_EQ(FindIsolation(false, /*runs_as_owners=*/true, all).container_runtime, "apptainer")
      << "podman needs programs with the set-user-ID bit";
  EXPECT_EQ(FindIsolation(false, false, Only({"enroot", "ch-run"})).container_program,
            "/usr/bin/ch-run");
  EXPECT_EQ(FindIsolation(true, false, Only({})), IsolationOffer{.has_cgroups = true});
}

TEST(Isolation, LabelsSayWhatThereIs) {
  EXPECT_THAT(IsolationLabels({}), ElementsAre());
  EXPECT_THAT(
      IsolationLabels({true, "/usr/bin/bwrap", "podman", "/usr/bin/podman"}),
      UnorderedElementsAre(Pair("isolation.cgroup", "yes"), Pair("isolation.sandbox", "yes"),
                           Pair("isolation.container", "yes")));
}

class GroupsTest : public ::testing::Test {
 protected:
  GroupsTest() : tree_(folder_.File("tree"), {"cpu", "cpuset", "memory", "pids"}) {
    options_.mount = folder_.File("tree");
    options_.own_group = "/system.slice/trainyard-worker.service";
    options_.mark = "0123abcd";
    options_.processes = 100;
  }

  absl::StatusOr<AttemptGroups> Open() { return AttemptGroups::Open(options_, tree_.calls()); }
  std::string Text(const std::string& path) const {
    return ReadFileRange(folder_.File("tree/" + path), 0, 1000).value_or("none");
  }

  testing::TempDir folder_;
  testing::FakeTree tree_;
  AttemptGroupOptions options_;
};

constexpr char kJobs[] = "system.slice/trainyard-jobs.service";
constexpr char kGroup[] = "system.slice/trainyard-jobs.service/trainyard-0123abcd-12-1";

TEST_F(GroupsTest, AGroupThatWasNotDelegatedIsLeftAlone) {
  tree_.Add("system.slice/trainyard-worker.service", false);
  const auto groups = Open();
  EXPECT_THAT(std::string(groups.status().message()), HasSubstr("Delegate=yes"));
  EXPECT_FALSE(FileExists(folder_.File("tree/system.slice/trainyard-worker.service/daemon")));
}

TEST_F(GroupsTest, TheUnitOfJobsGoesBeforeTheOwnOne) {
  tree_.Add("system.slice/trainyard-worker.service", true);
  ASSERT_THAT(Open()->PathOf({JobId{1}, 1}), HasSubstr("trainyard-worker.service/trainyard-"));
  tree_.Add(kJobs, true);
  EXPECT_THAT(Open()->PathOf({JobId{1}, 1}), HasSubstr("trainyard-jobs.service/trainyard-"));
}

TEST_F(GroupsTest, ASuccessorFindsTheGroupFromWithin) {
  tree_.Add("user.slice/run.scope", true);
  tree_.Add("user.slice/run.scope/daemon", false);
  options_.own_group = "/user.slice/run.scope/daemon";
  EXPECT_THAT(Open()->PathOf({JobId{1}, 1}), HasSubstr("run.scope/trainyard-"));
}

TEST_F(GroupsTest, AGroupCanBeNamed) {
  options_.where = "/lab";
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("/lab'"));
  tree_.Add("lab", false);
  EXPECT_TRUE(Open().ok());
}

TEST_F(GroupsTest, AHostWithoutTheUnifiedTreeSaysSo) {
  options_.mount = folder_.path();
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("version 2"));
}

TEST_F(GroupsTest, MemoryMustBeBoundable) {
  testing::FakeTree poor(folder_.File("poor"), {"cpu", "pids"});
  options_.mount = folder_.File("poor");
  poor.Add(kJobs, true);
  // The kernel refuses a controller that is not there; the files of this test do not.
  ASSERT_EQ(chmod(folder_.File(std::string("poor/") + kJobs).c_str(), 0700), 0);
  ASSERT_EQ(unlink(folder_.File(std::string("poor/") + kJobs + "/cgroup.subtree_control").c_str()),
            0);
  const auto groups = AttemptGroups::Open(options_, poor.calls());
  EXPECT_THAT(std::string(groups.status().message()), HasSubstr("no controller 'memory'"));
}

TEST_F(GroupsTest, AnAttemptGetsAGroupForEachRank) {
  tree_.Add(kJobs, true);
  const auto groups = Open();
  ASSERT_TRUE(groups.ok()) << groups.status();
  const AttemptId id{JobId{12}, 1};
  EXPECT_FALSE(groups->Has(id));
  ASSERT_TRUE(groups
                  ->Make(id,
                         {{.rank = 2, .cpus = {0}, .host_memory_bytes = 1 << 30},
                          {.rank = 3, .cpus = {1}, .host_memory_bytes = 1 << 29}},
                         /*is_per_host=*/false, FileOwner{})
                  .ok());
  EXPECT_TRUE(groups->Has(id));
  const std::string group = kGroup;
  EXPECT_EQ(Text(group + "/rank-2/memory.max"), "1073741824");
  EXPECT_EQ(Text(group + "/rank-2/memory.oom.group"), "1");
  EXPECT_EQ(Text(group + "/rank-2/cpuset.cpus"), "0");
  EXPECT_EQ(Text(group + "/rank-3/memory.max"), "536870912");
  EXPECT_EQ(Text(group + "/rank-3/pids.max"), "100");
  EXPECT_EQ(Text(group + "/memory.max"), "1677721600") << "the ranks, and 64 MiB";
  EXPECT_EQ(Text(group + "/pids.max"), "264");
  EXPECT_EQ(Text(group + "/supervisor/pids.max"), "max\n");
  // Its owner may move ranks to the supervisor, or beside it.
  EXPECT_EQ(Text(group + "/cpuset.cpus"), "0,1");

  EXPECT_TRUE(groups->Kill(id).ok()) << "nothing is in it";
  ASSERT_TRUE(
      cgroup::Group(folder_.File("tree/" + group)).Write("cgroup.events", "populated 1\n").ok());
  EXPECT_TRUE(absl::IsUnavailable(groups->Kill(id)));
  EXPECT_EQ(Text(group + "/cgroup.kill"), "1");
  EXPECT_TRUE(absl::IsUnavailable(groups->Remove(id)));
  ASSERT_TRUE(
      cgroup::Group(folder_.File("tree/" + group)).Write("cgroup.events", "populated 0\n").ok());
  EXPECT_TRUE(groups->Remove(id).ok());
  EXPECT_FALSE(groups->Has(id));
  EXPECT_TRUE(groups->Remove(id).ok());
}

TEST_F(GroupsTest, WithoutSetsOfProcessorsTheAttemptHasTheTimeOfItsRanks) {
  testing::FakeTree poor(folder_.File("poor"), {"cpu", "memory", "pids"});
  options_.mount = folder_.File("poor");
  poor.Add(kJobs, true);
  const auto groups = AttemptGroups::Open(options_, poor.calls());
  ASSERT_TRUE(groups.ok()) << groups.status();
  const auto made = groups->Make({JobId{12}, 1},
                                 {{.rank = 0, .cpus = {0, 1}, .host_memory_bytes = 1 << 30},
                                  {.rank = 1, .cpus = {1}, .host_memory_bytes = 1 << 30}},
                                 /*is_per_host=*/false, FileOwner{});
  ASSERT_TRUE(made.ok()) << made;
  const cgroup::Group group(folder_.File(std::string("poor/") + kGroup));
  EXPECT_EQ(*group.Read("cpu.max"), "300000 100000") << "they may share a processor";
  EXPECT_EQ(*group.Child("rank-0").Read("cpu.max"), "200000 100000");
  const auto unbound = groups->Make({JobId{13}, 1}, {{.rank = 0, .cpus = {0}}, {.rank = 1}},
                                    /*is_per_host=*/false, FileOwner{});
  ASSERT_TRUE(unbound.ok()) << unbound;
  const cgroup::Group other(
      folder_.File(std::string("poor/") + kJobs + "/trainyard-0123abcd-13-1"));
  EXPECT_NE(*other.Read("cpu.max"), "100000 100000") << "one of its ranks has no limit";
}

TEST_F(GroupsTest, OnlyOwnGroupsWithoutARunDirectoryAreRemoved) {
  tree_.Add(kJobs, true);
  const std::string jobs = std::string(kJobs) + "/";
  for (const char* name : {"trainyard-0123abcd-12-1", "trainyard-0123abcd-12-2",
                           "trainyard-ffffffff-12-1", "somebody-else", "trainyard-0123abcd-x-1"}) {
    tree_.Add(jobs + name, false);
  }
  const auto groups = Open();
  ASSERT_TRUE(groups.ok());
  groups->RemoveOthers({AttemptId{JobId{12}, 2}});
  EXPECT_THAT(cgroup::Group(folder_.File("tree/" + std::string(kJobs))).Children(),
              UnorderedElementsAre("daemon", "trainyard-0123abcd-12-2", "trainyard-ffffffff-12-1",
                                   "somebody-else", "trainyard-0123abcd-x-1"));
}

TEST(RankLimits, TheFirstRankHasAllWhereItStandsForAll) {
  const std::vector<run_dir::RankAssignment> ranks = {
      {.rank = 0, .cpus = {0, 1}, .host_memory_bytes = 1 << 30},
      {.rank = 1, .cpus = {2}, .host_memory_bytes = 1 << 30}};
  const auto limits = RankLimits(ranks, /*is_per_host=*/true, 0);
  EXPECT_EQ(limits[0].memory_bytes, int64_t{1} << 31);
  EXPECT_THAT(limits[0].cpus, ElementsAre(0, 1, 2));
  EXPECT_EQ(limits[1].memory_bytes, kSupervisorBytes);
  EXPECT_EQ(RankLimits(ranks, false, 0)[0].memory_bytes, 1 << 30);
}

}  // namespace
}  // namespace trainyard::agent
