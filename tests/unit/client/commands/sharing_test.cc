// Tests explain, top, quotas, reservations, shares and devices, arrays in lists, and held jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/commands/top_view.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSpec[] =
    "name: small\nmodel: {mlp: {}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n"
    "optimizer: {sgd: {lr: 0.1}}\n";

class Sharing : public ::testing::Test {
 protected:
  void AddWorker(v1::WorkerState state = v1::WORKER_STATE_ACTIVE) {
    v1::Worker worker;
    worker.set_name("workers/lab-1");
    worker.set_state(state);
    worker.set_scheduling(v1::WORKER_SCHEDULING_ELIGIBLE);
    for (const char* name : {"cpu-0", "cpu-1", "cpu-2"}) {
      v1::Device* device = worker.add_devices();
      device->set_name(name);
      device->set_type("cpu");
      device->set_health(v1::DEVICE_HEALTH_OK);
    }
    worker.mutable_devices(0)->set_attempt("jobs/1/attempts/1");
    worker.mutable_devices(2)->set_quarantine("smells");
    server_.AddWorker(worker);
  }
  void Explain() {
    v1::Explanation explanation;
    explanation.add_reasons("needs 4 devices; 1 of 2 is free (jobs/1 holds 1)");
    explanation.set_position(2);
    v1::SpecChange* change = explanation.add_change();
    change->set_path("devices.count");
    change->set_value_json("1");
    explanation.set_change_text("1 device is free");
    explanation.mutable_start_in()->set_seconds(723);
    explanation.mutable_start_time()->set_seconds(1'800'000'000);
    explanation.set_start_basis("when jobs/1 ends (its time limit)");
    server_.SetExplanation(explanation);
  }
  // A job that the server holds for a person.
  void Hold(const std::string& job) {
    server_.ChangeJob(job, [](v1::Job& held) {
      held.set_state(v1::JOB_STATE_SUSPENDED);
      held.mutable_failure()->set_failure_class(v1::FAILURE_CLASS_POISON);
      held.mutable_failure()->set_message("rank 0 fails on every worker");
    });
  }

  FakeServer server_;
  CommandRunner runner_{server_.address()};
};

TEST_F(Sharing, ExplainTellsReasonsChangeAndStart) {
  server_.AddJob("wide", v1::JOB_STATE_QUEUED);
  Explain();
  EXPECT_EQ(runner_.Run({"explain", "last"}).out,
            "jobs/1  wide  QUEUED, 2nd in the queue\n"
            "waits because\n"
            "  needs 4 devices; 1 of 2 is free (jobs/1 holds 1)\n"
            "would start now\n"
            "  1 device is free\n"
            "  trainyard clone 1 --yes --set devices.count=1\n"
            "starts\n"
            "  in about 12m 03s (2027-01-15 08:00:00 UTC): when jobs/1 ends (its time limit)\n");
  const auto json = nlohmann::json::parse(runner_.Run({"explain", "1", "-o", "json"}).out);
  EXPECT_EQ(json["change"][0]["path"], "devices.count");
}

TEST_F(Sharing, ExplainTakesASpecThatIsNotSubmittedYet) {
  Explain();
  const std::string spec = runner_.home.Write("job.yaml", kSpec);
  const CommandResult result =
      runner_.Run({"explain", "-f", spec, "--devices", "4", "--array", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("small  not submitted yet\n"),
                    HasSubstr("trainyard submit " + spec + " --set devices.count=1\n")));
  EXPECT_EQ(server_.last_explain().spec().devices().count(), 4);
  EXPECT_EQ(server_.last_explain().options().array_size(), 3);
  EXPECT_EQ(runner_.Run({"explain"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"explain", "7"}).exit_code, 3);
  const std::string bad = runner_.home.Write("bad.yaml", "name: a b\n");
  EXPECT_THAT(runner_.Run({"explain", "-f", bad}).err, HasSubstr("nothing was explained"));
}

TEST_F(Sharing, ExplainSaysWhenThereIsNothingToWaitFor) {
  server_.AddJob("runs", v1::JOB_STATE_RUNNING);
  EXPECT_THAT(runner_.Run({"explain", "1"}).out, HasSubstr("it is RUNNING and does not wait"));
  server_.AddJob("over", v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(runner_.Run({"explain", "2"}).out, HasSubstr("it has ended as SUCCEEDED"));
  server_.AddJob("new", v1::JOB_STATE_QUEUED);
  EXPECT_THAT(runner_.Run({"explain", "3"}).out, HasSubstr("ask again in a moment"));
  Hold("jobs/1");
  EXPECT_THAT(runner_.Run({"explain", "1"}).out,
              AllOf(HasSubstr("rank 0 fails on every worker"), HasSubstr("trainyard resume 1")));
}

TEST_F(Sharing, TopShowsDevicesQueueAndSharesOnceWithoutATerminal) {
  AddWorker();
  server_.AddJob("trains", v1::JOB_STATE_RUNNING);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.mutable_progress()->set_step(50);
    job.mutable_progress()->set_total_steps(100);
    job.mutable_progress()->mutable_eta()->set_seconds(90);
  });
  server_.AddJob("waits", v1::JOB_STATE_QUEUED);
  server_.ChangeJob("jobs/2", [](v1::Job& job) { job.add_queue_reasons("no device is free"); });
  v1::Share share;
  share.set_user("anna");
  share.mutable_device_time()->set_seconds(5400);
  share.set_weight(2);
  share.set_devices(1);
  share.set_queued_jobs(1);
  server_.AddShare(share);
  const CommandResult result = runner_.Run({"top"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("3 devices: 1 busy, 1 free, 1 set aside   1 queued"),
            HasSubstr("lab-1   cpu-0   cpu     1  trains  anna  ######...... 50%     90s\n"),
            HasSubstr("        cpu-1   cpu     -  -       -     free"),
            HasSubstr("SET ASIDE (smells)"), HasSubstr("no device is free\n"),
            HasSubstr("anna  -              1       1          1.50  100.0%       2\n"),
            Not(HasSubstr("\x1b"))));
}

TEST_F(Sharing, TopKeepsToTheScreen) {
  commands::TopData data;
  v1::Worker* worker = data.workers.add_workers();
  worker->set_name("workers/lab-1");
  worker->set_state(v1::WORKER_STATE_ACTIVE);
  for (int i = 0; i < 100; ++i) worker->add_devices()->set_name(std::to_string(i));
  for (int i = 0; i < 100; ++i) {
    v1::Job* job = data.queue.add_jobs();
    job->set_name("jobs/" + std::to_string(i + 1));
    job->add_queue_reasons(std::string(500, 'x'));
  }
  for (int i = 0; i < 100; ++i) data.shares.add_shares()->set_user(std::to_string(i));
  output::Terminal terminal;
  terminal.color = true;
  for (const int height : {16, 24, 50}) {
    const std::string picture = commands::RenderTop(data, terminal, height);
    EXPECT_LE(std::count(picture.begin(), picture.end(), '\n'), height);
    EXPECT_THAT(picture, HasSubstr("more\n"));
    std::istringstream lines(picture);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(output::DisplayWidth(line), terminal.width) << line;
    }
  }
}

TEST_F(Sharing, JobsOfAnArrayThatWaitForTheSameAreOneRowOfTop) {
  for (int i = 0; i < 4; ++i) {
    server_.AddJob("sweep", v1::JOB_STATE_QUEUED);
    server_.ChangeJob("jobs/" + std::to_string(i + 1), [i](v1::Job& job) {
      job.set_array("jobs/1");
      job.mutable_spec()->set_name("sweep");
      job.add_queue_reasons(i < 3 ? "no device is free" : "its turn comes");
    });
  }
  EXPECT_THAT(runner_.Run({"top", "--once"}).out,
              AllOf(HasSubstr(" 1..3  1..3  sweep"), HasSubstr("    4     4  sweep")));
}

TEST_F(Sharing, AnArrayIsOneRowOfTheList) {
  server_.AddJob("sweep-0", v1::JOB_STATE_RUNNING);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.mutable_spec()->set_name("sweep");
    job.set_array("jobs/1");
    job.set_array_size(10'000);
    const auto add = [&job](v1::JobState state, int jobs) {
      v1::StateCount* count = job.add_array_states();
      count->set_state(state);
      count->set_jobs(jobs);
    };
    add(v1::JOB_STATE_QUEUED, 9997);
    add(v1::JOB_STATE_RUNNING, 3);
  });
  EXPECT_THAT(runner_.Run({"ls"}).out,
              HasSubstr("1..10000  sweep  [3 running, 9,997 queued]        1     -"));
  EXPECT_TRUE(server_.last_list().group_arrays());
  runner_.Run({"ls", "--expand", "--user", "anna", "--project", "vision"});
  EXPECT_FALSE(server_.last_list().group_arrays());
  EXPECT_EQ(server_.last_list().user(), "anna");
  EXPECT_EQ(server_.last_list().project(), "vision");
  runner_.Run({"ls", "--array", "1"});
  EXPECT_FALSE(server_.last_list().group_arrays());
  EXPECT_EQ(server_.last_list().array(), "jobs/1");
  runner_.Run({"ls", "-o", "json"});
  EXPECT_FALSE(server_.last_list().group_arrays());
}

TEST_F(Sharing, AJobShowsWhatItWaitsForAndWhatItUsed) {
  server_.AddJob("picky", v1::JOB_STATE_QUEUED);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.add_queue_reasons("no device is free");
    v1::Dependency* dependency = job.add_dependencies();
    dependency->set_job("jobs/9");
    dependency->set_ok(true);
    job.mutable_begin_time()->set_seconds(1'800'000'000);
    job.set_preemptions(2);
    job.mutable_device_time()->set_seconds(7200);
    job.set_reservation("course");
    job.mutable_resolved_spec()->set_project("vision");
    job.set_array("jobs/1");
    job.set_array_size(5);
  });
  EXPECT_THAT(runner_.Run({"show", "1"}).out,
              AllOf(HasSubstr("`trainyard explain 1` says when it starts"),
                    HasSubstr("after         jobs/9 has succeeded\n"),
                    HasSubstr("begins        not before 2027-01-15 08:00:00 UTC\n"),
                    HasSubstr("preempted     2 times\n"),
                    HasSubstr("used          2h 00m of device time\n"),
                    HasSubstr("reservation   course\n"), HasSubstr("project       vision\n"),
                    HasSubstr("array         job 1 of 5, which begin with jobs/1\n")));
}

TEST_F(Sharing, AHeldJobHasEndedBadly) {
  server_.AddJob("poison", v1::JOB_STATE_QUEUED);
  Hold("jobs/1");
  const CommandResult waited = runner_.Run({"wait", "1"});
  EXPECT_EQ(waited.exit_code, 8);
  EXPECT_THAT(waited.err, AllOf(HasSubstr("held: rank 0 fails on every worker"),
                                HasSubstr("`trainyard resume 1`")));
  const CommandResult watched = runner_.Run({"watch", "1"});
  EXPECT_EQ(watched.exit_code, 8);
  EXPECT_THAT(watched.err, AllOf(HasSubstr("held for a person (poison): rank 0 fails"),
                                 HasSubstr("trainyard resume 1")));
  EXPECT_THAT(runner_.Run({"show", "1"}).out, HasSubstr("held          for a person"));
  EXPECT_THAT(runner_.Run({"ls"}).out, HasSubstr("rank 0 fails on every worker\n"));
}

TEST_F(Sharing, ArraysAndTheQueueAreCancelledInOneCall) {
  server_.AddJob("sweep", v1::JOB_STATE_QUEUED);
  EXPECT_EQ(runner_.Run({"cancel", "--array", "last", "--reason", "wrong"}).exit_code, 0);
  EXPECT_EQ(server_.last_cancel().array(), "jobs/1");
  EXPECT_EQ(server_.last_cancel().reason(), "wrong");
  const CommandResult all = runner_.Run({"cancel", "--all-queued"});
  EXPECT_THAT(all.err, HasSubstr("there was nothing to cancel"));
  EXPECT_TRUE(server_.last_cancel().has_user());
  EXPECT_THAT(server_.last_cancel().states(), ElementsAre(v1::JOB_STATE_QUEUED));
  EXPECT_EQ(runner_.Run({"cancel"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"cancel", "1", "--all-queued"}).exit_code, 2);
}

TEST_F(Sharing, UsageShowsWhatTakesSpaceTheMostFirst) {
  v1::ListUsageResponse usage;
  const auto add = [&usage](const std::string& subject, int64_t gib, int64_t limit_gib) {
    v1::Usage& sum = *usage.add_usage();
    sum.set_subject(subject);
    sum.set_jobs(1200);
    sum.mutable_device_time()->set_seconds(5400);
    sum.mutable_stored()->set_checkpoints(gib << 30);
    sum.mutable_stored()->set_logs(1024);
    sum.set_stored_bytes_max(limit_gib << 30);
  };
  add("user:anna", 1, 0);
  add("user:ben", 9, 10);
  add("project:", 10, 0);
  v1::JobUsage& job = *usage.add_largest_jobs();
  job.set_job("jobs/7");
  job.set_display_name("wide");
  job.set_user("ben");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.mutable_stored()->set_metrics(2048);
  server_.SetUsage(usage);

  const std::string users = runner_.Run({"usage"}).out;
  EXPECT_THAT(users, AllOf(HasSubstr("CHECKPOINTS"), HasSubstr("1,200"), HasSubstr("1.50"),
                           HasSubstr("90.0% of 10 GiB")));
  EXPECT_LT(users.find("ben"), users.find("anna"));
  EXPECT_THAT(runner_.Run({"usage", "--by", "project"}).out, HasSubstr("(none)"));
  const CommandResult largest = runner_.Run({"usage", "--largest", "3"});
  EXPECT_THAT(largest.out, AllOf(HasSubstr("wide"), HasSubstr("2.0 KiB")));
  EXPECT_THAT(largest.err, HasSubstr("`trainyard rm JOB --checkpoints`"));
  EXPECT_EQ(runner_.Run({"usage", "--largest", "3", "-o", "name"}).out, "jobs/7\n");
  EXPECT_THAT(runner_.Run({"usage", "-o", "json"}).out, HasSubstr("\"subject\": \"user:ben\""));
  EXPECT_EQ(runner_.Run({"usage", "--by", "day"}).exit_code, 2);
}

TEST_F(Sharing, AQuotaKeepsTheLimitsThatAreNotGiven) {
  EXPECT_EQ(
      runner_.Run({"quotas", "set", "user:anna", "--devices", "4", "--weight", "2"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"quotas", "set", "user:anna", "--queued", "1000", "--storage", "80 GiB"})
                .exit_code,
            0);
  EXPECT_EQ(runner_.Run({"quotas", "ls"}).out,
            "SUBJECT    DEVICES  QUEUED  SUBMITS/MIN  STORAGE  WEIGHT\n"
            "user:anna        4   1,000            -   80 GiB       2\n");
  EXPECT_EQ(
      runner_.Run({"quotas", "set", "user:anna", "--cpus", "64", "--memory", "512 GiB"}).exit_code,
      0);
  EXPECT_EQ(runner_.Run({"quotas", "ls"}).out,
            "SUBJECT    DEVICES  QUEUED  SUBMITS/MIN  STORAGE  WEIGHT  CPUS   MEMORY\n"
            "user:anna        4   1,000            -   80 GiB       2    64  512 GiB\n");
  EXPECT_EQ(
      runner_.Run({"quotas", "set", "user:anna", "--cpus", "0", "--memory", "unlimited"}).exit_code,
      0);
  EXPECT_THAT(runner_.Run({"quotas", "set", "user:anna", "--devices", "0", "--storage", "0"}).err,
              HasSubstr("0 is no limit"));
  EXPECT_THAT(runner_.Run({"quotas", "ls"}).out,
              HasSubstr("user:anna        -   1,000            -        -       2\n"));
  const CommandResult unlimited = runner_.Run(
      {"quotas", "set", "user:anna", "--queued", "unlimited", "--storage", "unlimited"});
  EXPECT_EQ(unlimited.exit_code, 0) << unlimited.err;
  EXPECT_THAT(unlimited.err, Not(HasSubstr("no limit")));
  EXPECT_THAT(runner_.Run({"quotas", "ls"}).out,
              HasSubstr("user:anna        -       -            -        -       2\n"));
  const CommandResult none = runner_.Run({"quotas", "set", "user:anna", "--devices", "none"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("'none' is no limit; expected a number, or unlimited"));
  EXPECT_EQ(runner_.Run({"quotas", "set", "user:anna", "--devices", "-1"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"quotas", "set", "user:anna"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"quotas", "set", "user:anna", "--storage", "80"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"quotas", "rm", "user:anna"}).exit_code, 0);
  EXPECT_THAT(runner_.Run({"quotas", "ls"}).err, HasSubstr("no quotas"));
  EXPECT_EQ(runner_.Run({"quotas", "rm", "user:anna"}).exit_code, 3);
}

TEST_F(Sharing, AReservationIsMadeListedAndCalledOff) {
  const CommandResult made =
      runner_.Run({"reservations", "create", "course", "--for", "project:course", "--device",
                   "lab-1/cpu-0", "--start", "2030-01-02T08:00:00Z", "--end", "+4h"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.out, "course\n");
  EXPECT_THAT(made.err, HasSubstr("reserved lab-1/cpu-0 from 2030-01-02 08:00:00 UTC to "
                                  "2030-01-02 12:00:00 UTC"));
  EXPECT_THAT(runner_.Run({"reservations", "ls"}).out,
              HasSubstr("course  to come  2030-01-02 08:00:00 UTC  2030-01-02 12:00:00 UTC  "
                        "project:course  user:olga  lab-1/cpu-0\n"));
  EXPECT_EQ(runner_
                .Run({"reservations", "create", "x", "--for", "user:a", "--devices", "2", "--type",
                      "h200", "--end", "+1h"})
                .exit_code,
            0);
  EXPECT_EQ(server_.last_reservation().count(), 2);
  EXPECT_EQ(server_.last_reservation().type(), "h200");
  EXPECT_FALSE(server_.last_reservation().reservation().has_start_time());
  EXPECT_EQ(
      runner_.Run({"reservations", "create", "x", "--for", "user:a", "--end", "+1h"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"reservations", "rm", "course"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"reservations", "rm", "course"}).exit_code, 3);
}

TEST_F(Sharing, WorkersAreDrainedAndDevicesSetAside) {
  AddWorker();
  const CommandResult drained =
      runner_.Run({"drain", "lab-1", "--within", "10m", "--reason", "new power supply"});
  EXPECT_EQ(drained.exit_code, 0) << drained.err;
  EXPECT_THAT(drained.err, AllOf(HasSubstr("1 device to go"), HasSubstr("uncordon lab-1")));
  EXPECT_EQ(server_.last_drain().within().seconds(), 600);
  EXPECT_EQ(server_.last_drain().reason(), "new power supply");
  EXPECT_EQ(runner_.Run({"drain", "lab-1", "--within", "10"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"drain", "lab-9"}).exit_code, 3);

  EXPECT_THAT(runner_.Run({"devices", "quarantine", "lab-1/cpu-1", "--reason", "hot"}).err,
              HasSubstr("device cpu-1 of workers/lab-1 is set aside"));
  EXPECT_THAT(runner_.Run({"devices", "ls"}).out,
              AllOf(HasSubstr("cpu-1   cpu   SET ASIDE (hot)"), HasSubstr("jobs/1/attempts/1")));
  EXPECT_EQ(runner_.Run({"devices", "release", "lab-1/cpu-1", "lab-1/cpu-2"}).exit_code, 0);
  EXPECT_THAT(runner_.Run({"devices", "ls"}).out, Not(HasSubstr("SET ASIDE")));
  EXPECT_EQ(runner_.Run({"devices", "release", "cpu-1"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"devices", "release", "lab-1/cpu-9"}).exit_code, 3);
  EXPECT_EQ(runner_.Run({"devices", "ls", "-o", "name"}).out,
            "lab-1/cpu-0\nlab-1/cpu-1\nlab-1/cpu-2\n");
}

TEST_F(Sharing, OnlyAWorkerThatIsNotHeardIsDeclaredLost) {
  AddWorker();
  const CommandResult refused = runner_.Run({"workers", "lost", "lab-1"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("is ACTIVE"), HasSubstr("trainyard drain")));
}

TEST_F(Sharing, AWorkerIsDeclaredLost) {
  AddWorker(v1::WORKER_STATE_UNREACHABLE);
  const CommandResult lost =
      runner_.Run({"workers", "lost", "lab-1", "--reason", "its power supply burnt"});
  EXPECT_EQ(lost.exit_code, 0) << lost.err;
  EXPECT_THAT(lost.err, HasSubstr("is GONE; what it ran is queued again"));
  EXPECT_EQ(server_.last_lost().name(), "workers/lab-1");
  EXPECT_EQ(server_.last_lost().reason(), "its power supply burnt");
  EXPECT_EQ(runner_.Run({"workers", "lost", "lab-9"}).exit_code, 3);
  EXPECT_EQ(runner_.Run({"workers", "lost"}).exit_code, 2);
}

}  // namespace
}  // namespace trainyard::testing
