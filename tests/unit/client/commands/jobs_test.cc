// Tests ls, show, suspend, workers and devices, against the fake server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Jobs : public ::testing::Test {
 protected:
  FakeServer server_;
  CommandRunner runner_{server_.address()};
};

TEST_F(Jobs, AreListedNewestFirst) {
  server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
  server_.AddJob("second", v1::JOB_STATE_QUEUED);
  const int64_t now = absl::ToUnixSeconds(Clock::Real()->Now());
  server_.ChangeJob("jobs/1", [now](v1::Job& job) {
    job.mutable_progress()->set_step(10);
    job.mutable_progress()->set_total_steps(10);
    (*job.mutable_final_metrics())["test.accuracy"] = 0.913;
    job.mutable_create_time()->set_seconds(now - int64_t{3} * 3600 - 10);
    job.mutable_start_time()->set_seconds(1000);
    job.mutable_end_time()->set_seconds(1092);
  });
  server_.ChangeJob("jobs/2", [now](v1::Job& job) {
    job.mutable_create_time()->set_seconds(now - 300 - 10);
    job.add_queue_reasons("no device is free");
  });
  EXPECT_EQ(runner_.Run({"ls"}).out,
            "JOB  NAME    STATE      DEVICES  DONE  ACCURACY  ETA  TOOK  AGE  WHY\n"
            "  2  second  QUEUED           1     -         -    -     -   5m  no device is free\n"
            "  1  first   SUCCEEDED        1  100%     91.3%    -   92s   3h  -\n");
}

TEST_F(Jobs, ShowTellsWhoHostsWhatAndWhy) {
  server_.AddJob("first", v1::JOB_STATE_RUNNING);
  EXPECT_THAT(runner_.Run({"show", "1"}).out, Not(HasSubstr("hosting")));
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    v1::Progress& progress = *job.mutable_progress();
    progress.set_hosting_reason("speeds of steps 3 to 10");
    for (int rank = 0; rank < 2; ++rank) {
      v1::RankPlacement& placed = *job.add_placement();
      placed.set_rank(rank);
      placed.set_worker("workers/lab-1");
      placed.set_device(absl::StrCat("cpu-", rank));
      v1::RankHosting& host = *progress.add_hosting();
      host.set_rank(rank);
      host.set_first_replica(rank * 6);
      host.set_replicas(rank == 0 ? 6 : 2);
      host.set_samples_per_s(rank == 0 ? 4050 : 0);
    }
  });
  EXPECT_THAT(runner_.Run({"show", "1"}).out,
              HasSubstr("hosting       speeds of steps 3 to 10\n"
                        "              RANK  WORKER  DEVICE  REPLICAS  SHARE  SAMPLES/S\n"
                        "                 0  lab-1   cpu-0   0-5 (6)   75.0%      4,050\n"
                        "                 1  lab-1   cpu-1   6-7 (2)   25.0%          -\n"));
  const auto json = nlohmann::json::parse(runner_.Run({"show", "1", "-o", "json"}).out);
  EXPECT_EQ(json["progress"]["hosting"][0]["replicas"], 6);
}

TEST_F(Jobs, ShowWarnsOfLayersThatCudnnRefused) {
  server_.AddJob("first", v1::JOB_STATE_RUNNING);
  EXPECT_THAT(runner_.Run({"show", "1"}).out, Not(HasSubstr("fallbacks")));
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.mutable_progress()->set_fallbacks(1);
    job.mutable_progress()->set_first_fallback("conv1 conv2d: cuDNN has no plan");
  });
  EXPECT_THAT(
      runner_.Run({"show", "1"}).out,
      HasSubstr(
          "fallbacks     1 operation is computed by slower kernels, because cuDNN refused it\n"
          "              conv1 conv2d: cuDNN has no plan\n"));
  server_.ChangeJob("jobs/1", [](v1::Job& job) { job.mutable_progress()->set_fallbacks(12); });
  EXPECT_THAT(runner_.Run({"show", "1"}).out,
              HasSubstr("fallbacks     12 operations are computed by slower kernels, because cuDNN "
                        "refused them\n"
                        "              first: conv1 conv2d: cuDNN has no plan\n"
                        "              the log of each rank names its own\n"));
}

TEST_F(Jobs, ShowTellsThePrecision) {
  server_.AddJob("first", v1::JOB_STATE_QUEUED);
  EXPECT_THAT(runner_.Run({"show", "1"}).out, Not(HasSubstr("precision")));
  const auto set = [&](v1::Precision precision) {
    server_.ChangeJob("jobs/1", [precision](v1::Job& job) {
      job.mutable_resolved_spec()->mutable_train()->set_precision(precision);
    });
  };
  set(v1::PRECISION_AUTO);
  EXPECT_THAT(runner_.Run({"show", "1"}).out, HasSubstr("\nprecision     auto\n"));
  set(v1::PRECISION_BF16);
  EXPECT_THAT(runner_.Run({"show", "1"}).out, HasSubstr("\nprecision     bf16\n"));
  const auto json = nlohmann::json::parse(runner_.Run({"show", "1", "-o", "json"}).out);
  EXPECT_EQ(json["resolved_spec"]["train"]["precision"], "bf16");
}

TEST_F(Jobs, ShowTellsTheStagesOfAPipeline) {
  server_.AddJob("first", v1::JOB_STATE_RUNNING);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    for (int rank = 0; rank < 2; ++rank) {
      v1::RankHosting& host = *job.mutable_progress()->add_hosting();
      host.set_rank(rank);
      host.set_stage(rank);
      host.set_replicas(1);
    }
  });
  EXPECT_THAT(
      runner_.Run({"show", "1"}).out,
      HasSubstr("RANK  WORKER  DEVICE  STAGE  REPLICAS   SHARE  SAMPLES/S\n"
                "                 0  -       -           0  0 (1)     100.0%          -\n"));
}

TEST_F(Jobs, AreListedAsDataToo) {
  server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
  server_.AddJob("second", v1::JOB_STATE_QUEUED);
  const auto list = nlohmann::json::parse(runner_.Run({"ls", "-o", "json"}).out);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["name"], "jobs/2");
  EXPECT_EQ(list[1]["state"], "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(list[1]["resolved_spec"]["name"], "first");
  EXPECT_EQ(runner_.Run({"ls", "-o", "name"}).out, "jobs/2\njobs/1\n");
  EXPECT_THAT(runner_.Run({"ls", "-o", "yaml"}).out, HasSubstr("- name: jobs/2\n  "));
  const std::string lines = runner_.Run({"ls", "-o", "jsonl"}).out;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_EQ(runner_.Run({"ls", "--state", "queued", "-o", "name"}).out, "jobs/2\n");
}

TEST_F(Jobs, AllPagesAreFetched) {
  for (int i = 0; i < 1005; ++i) server_.AddJob("a", v1::JOB_STATE_QUEUED);
  const auto count = [&](const std::vector<std::string>& args) {
    const std::string out = runner_.Run(args).out;
    return std::count(out.begin(), out.end(), '\n');
  };
  EXPECT_EQ(count({"ls", "-a", "-o", "name"}), 1005);
  EXPECT_EQ(count({"ls", "-o", "name"}), 20);
  EXPECT_EQ(count({"ls", "--limit", "1003", "-o", "name"}), 1003);
}

TEST_F(Jobs, NoJobsAreNoTable) {
  const CommandResult result = runner_.Run({"ls"});
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("no jobs"));
  EXPECT_EQ(nlohmann::json::parse(runner_.Run({"ls", "-o", "json"}).out).size(), 0u);
}

TEST_F(Jobs, AProgramIsShownWithItsParameters) {
  server_.AddJob("tune", v1::JOB_STATE_RUNNING);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    v1::ProgramSpec& program = *job.mutable_resolved_spec()->mutable_program();
    for (const char* word : {"python3", "train.py", "--lr", "{lr}"}) program.add_command(word);
    (*program.mutable_params())["lr"] = "0.3";
    (*program.mutable_params())["epochs"] = "2";
  });
  EXPECT_THAT(runner_.Run({"show", "1"}).out, HasSubstr("program       python3 train.py --lr {lr}\n"
                                                        "params        epochs=2, lr=0.3\n"));
}

TEST_F(Jobs, OneThatRunsSaysThatAWorkerIsOutOfContact) {
  const std::string remark =
      "worker lab-2 is out of contact; if that lasts 10m 25s, its part of the "
      "job counts as lost";
  server_.AddJob("first", v1::JOB_STATE_RUNNING);
  EXPECT_THAT(runner_.Run({"show", "1"}).out, Not(HasSubstr("contact")));
  server_.ChangeJob("jobs/1", [&](v1::Job& job) { job.add_queue_reasons(remark); });
  EXPECT_THAT(runner_.Run({"ls"}).out, HasSubstr(remark));
  EXPECT_THAT(runner_.Run({"show", "1"}).out, HasSubstr("contact       " + remark));
}

TEST_F(Jobs, TextsAreCutOnATerminalOnly) {
  const std::string why =
      "3 devices of the 8 that it needs are free, and the others are held by jobs/7";
  server_.AddJob("first", v1::JOB_STATE_QUEUED);
  server_.ChangeJob("jobs/1", [&](v1::Job& job) {
    job.add_queue_reasons(why);
    job.set_note(why);
  });
  EXPECT_THAT(runner_.Run({"ls"}).out, HasSubstr(why));
  EXPECT_THAT(runner_.Run({"ls", "--columns", "job,note"}).out, HasSubstr(why));
  runner_.terminal.out_is_terminal = true;
  runner_.terminal.width = 400;
  EXPECT_THAT(runner_.Run({"ls"}).out, AllOf(Not(HasSubstr(why)), HasSubstr("...")));
  EXPECT_THAT(runner_.Run({"ls", "-o", "wide"}).out, HasSubstr(why));
}

TEST_F(Jobs, StatesWithACommaLeadToTheFlagThatRepeats) {
  const CommandResult result = runner_.Run({"ls", "--state", "queued,running"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--state queued --state running"));
}

TEST_F(Jobs, ThePageOfAJobThatIsNotThereIsNotServed) {
  const CommandResult result = runner_.Run({"web", "999", "--no-open"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("jobs/999"));
}

TEST_F(Jobs, AStateThatIsNoneIsRefused) {
  const CommandResult result = runner_.Run({"ls", "--state", "asleep"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("expected queued, starting, running"));
}

TEST_F(Jobs, AreShownWithWhyTheyWaitAndTheirHistory) {
  server_.AddJob("first", v1::JOB_STATE_QUEUED);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.add_queue_reasons("no device is free");
    job.add_queue_reasons("jobs/9 goes first");
  });
  const CommandResult result = runner_.Run({"show", "last", "--events"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("job           jobs/1  first\n"),
                                HasSubstr("waits         no device is free\n"
                                          "              jobs/9 goes first\n"),
                                HasSubstr("model         mlp on glyphs\n"),
                                HasSubstr("JOB_QUEUED  user:anna  jobs/1    submitted\n")));
  EXPECT_THAT(runner_.Run({"show", "1", "--spec"}).out,
              HasSubstr("# jobs/1, resolved\nname: first\n"));
  const auto json = nlohmann::json::parse(runner_.Run({"show", "1", "-o", "json"}).out);
  EXPECT_EQ(json["name"], "jobs/1");
  EXPECT_EQ(runner_.Run({"show", "7"}).exit_code, 3);
}

TEST_F(Jobs, OneThatCannotBeCancelledDoesNotKeepTheOthersFromIt) {
  server_.AddJob("first", v1::JOB_STATE_QUEUED);
  server_.AddJob("second", v1::JOB_STATE_SUCCEEDED);
  server_.AddJob("third", v1::JOB_STATE_QUEUED);
  const CommandResult result = runner_.Run({"cancel", "1-3", "-o", "name"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.out, "jobs/1\njobs/3\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("2 cancelled, 1 could not be cancelled"),
                                HasSubstr("job 'jobs/2' is SUCCEEDED and cannot be cancelled")));
}

TEST_F(Jobs, WorkersAreListedAndCordoned) {
  v1::Worker worker;
  worker.set_name("workers/lab-1");
  worker.set_state(v1::WORKER_STATE_ACTIVE);
  worker.set_scheduling(v1::WORKER_SCHEDULING_ELIGIBLE);
  worker.set_version("0.1.0");
  worker.mutable_last_seen_time()->set_seconds(absl::ToUnixSeconds(Clock::Real()->Now()) + 60);
  for (const char* name : {"cpu-0", "cpu-1"}) {
    v1::Device* device = worker.add_devices();
    device->set_name(name);
    device->set_type("cpu");
    device->set_health(v1::DEVICE_HEALTH_OK);
    device->set_threads(2);
  }
  worker.mutable_devices(0)->set_attempt("jobs/1/attempts/1");
  server_.AddWorker(worker);
  EXPECT_EQ(runner_.Run({"workers", "ls"}).out,
            "WORKER  STATE   SCHEDULING  DEVICES  BUSY  TYPE  SEEN  VERSION\n"
            "lab-1   ACTIVE  ELIGIBLE          2     1  cpu     0s  0.1.0\n");
  EXPECT_EQ(runner_.Run({"workers", "ls", "-o", "wide"}).out,
            "WORKER  DEVICE  TYPE  HEALTH  THREADS  MEMORY  HELD BY            PRODUCT\n"
            "lab-1   cpu-0   cpu   OK            2       -  jobs/1/attempts/1  -\n"
            "lab-1   cpu-1   cpu   OK            2       -  -                  -\n");
  EXPECT_EQ(runner_.Run({"workers", "cordon", "lab-1"}).exit_code, 0);
  EXPECT_THAT(runner_.Run({"workers", "ls"}).out, HasSubstr("CORDONED"));
  EXPECT_EQ(runner_.Run({"workers", "cordon", "lab-2"}).exit_code, 3);
}

TEST_F(Jobs, WorkersThatAreOutOfContactCanBeRemoved) {
  v1::Worker worker;
  worker.set_name("workers/old");
  worker.set_state(v1::WORKER_STATE_ACTIVE);
  server_.AddWorker(worker);
  EXPECT_EQ(runner_.Run({"workers", "rm", "old"}).exit_code, 6);
  worker.set_state(v1::WORKER_STATE_UNREACHABLE);
  server_.AddWorker(worker);
  const CommandResult removed = runner_.Run({"workers", "rm", "old", "--reason", "sold"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_THAT(removed.err, HasSubstr("workers/old is removed"));
  EXPECT_EQ(runner_.Run({"workers", "rm", "old"}).exit_code, 3);
}

TEST_F(Jobs, StatusSaysWhatTheServerDoes) {
  v1::Worker worker;
  worker.set_name("workers/lab-1");
  worker.set_state(v1::WORKER_STATE_ACTIVE);
  worker.add_devices()->set_attempt("jobs/1/attempts/1");
  worker.add_devices();
  server_.AddWorker(worker);
  server_.AddJob("first", v1::JOB_STATE_RUNNING);
  const CommandResult result = runner_.Run({"status"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, absl::StrCat("the server at ", server_.address(),
                                     " answers\n1 worker: 1 active\n"
                                     "2 devices of active workers: 1 busy, 1 free\n"
                                     "1 job on devices, 0 in the queue\n"));
  EXPECT_EQ(CommandRunner("unix:/nonexistent/sock").Run({"status"}).exit_code, 9);
}

// After a restart, the server expects its workers back for a while.
TEST_F(Jobs, AWorkerThatHasNotReportedForLongDoesNotLookAlive) {
  v1::Worker worker;
  worker.set_name("workers/old");
  worker.set_state(v1::WORKER_STATE_ACTIVE);
  worker.mutable_last_seen_time()->set_seconds(absl::ToUnixSeconds(Clock::Real()->Now()) - 1200);
  server_.AddWorker(worker);
  EXPECT_THAT(runner_.Run({"workers", "ls"}).out,
              AllOf(HasSubstr("old     SILENT"), Not(HasSubstr("ACTIVE"))));
  server_.AddJob("first", v1::JOB_STATE_STARTING);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.add_placement()->set_worker("workers/old");
    job.mutable_placement(0)->set_device("cpu-0");
  });
  EXPECT_THAT(runner_.Run({"explain", "1"}).out,
              HasSubstr("it is STARTING on old, which has not reported for 20m"));
}

TEST_F(Jobs, DevicesAreListedWithWhatGpusDoAndWhyTheyAreNotWell) {
  v1::Worker worker;
  worker.set_name("workers/lab-1");
  for (const char* name : {"GPU-aa", "GPU-bb"}) {
    v1::Device* device = worker.add_devices();
    device->set_name(name);
    device->set_type("h200");
    device->set_memory_bytes(int64_t{141} << 30);
    device->set_product("NVIDIA H200");
    device->set_health(v1::DEVICE_HEALTH_OK);
  }
  v1::DeviceUsage& usage = *worker.mutable_devices(0)->mutable_usage();
  usage.set_utilization(0.934);
  usage.set_memory_bytes(int64_t{70} << 30);
  usage.set_power_watts(649.6);
  usage.set_power_limit_watts(700);
  usage.set_temperature_celsius(84);
  usage.set_slowed_by("heat");
  worker.mutable_devices(1)->set_health(v1::DEVICE_HEALTH_QUARANTINED);
  worker.mutable_devices(1)->set_health_reason("Xid 79: it is off the bus");
  server_.AddWorker(worker);
  const std::string table = runner_.Run({"devices", "ls"}).out;
  EXPECT_THAT(table, HasSubstr("MEMORY    USED  UTIL      POWER  TEMP  SLOWED BY  HELD BY"));
  EXPECT_THAT(table, HasSubstr("141 GiB  70 GiB   93%  650/700 W  84 C  heat"));
  EXPECT_THAT(table, HasSubstr("QUARANTINED (Xid 79: it is off the bus)"));
  const std::string json = runner_.Run({"devices", "ls", "-o", "json"}).out;
  EXPECT_THAT(json, HasSubstr("\"temperature_celsius\""));
  EXPECT_THAT(json, HasSubstr("\"health_reason\""));
}

TEST_F(Jobs, DescriptionsAndTagsAreShown) {
  server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.mutable_resolved_spec()->set_description("The baseline.\nTo compare with.");
    job.mutable_resolved_spec()->add_tags("paper");
    job.mutable_resolved_spec()->add_tags("resnet/ablation");
  });
  EXPECT_THAT(runner_.Run({"show", "1"}).out,
              AllOf(HasSubstr("description   The baseline.\n              To compare with.\n"),
                    HasSubstr("tags          paper, resnet/ablation\n")));
  EXPECT_THAT(runner_.Run({"ls", "-o", "wide"}).out,
              AllOf(HasSubstr("TAGS"), HasSubstr("paper,resnet/ablation  The baseline.")));
  EXPECT_THAT(runner_.Run({"ls"}).out, Not(HasSubstr("paper")));
}

// A spec that is handed on names the data on which its job has trained.
TEST_F(Jobs, TheSpecThatIsShownNamesTheDataThatWereRead) {
  server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(runner_.Run({"show", "1", "--spec"}).out, Not(HasSubstr("xxh3-128")));
  server_.ChangeJob(
      "jobs/1", [](v1::Job& job) { job.mutable_provenance()->set_data_digest("xxh3-128:3d50"); });
  EXPECT_THAT(runner_.Run({"show", "1", "--spec"}).out, HasSubstr("digest: \"xxh3-128:3d50\"\n"));
}

// Specs and reasons of some people must not paint the terminals of others.
TEST_F(Jobs, ControlCharactersOfOthersAreShownAndNotObeyed) {
  server_.AddJob("first", v1::JOB_STATE_QUEUED);
  server_.ChangeJob("jobs/1", [](v1::Job& job) {
    job.add_queue_reasons("lunch \x1b[31mRED\r\nforged");
    job.mutable_resolved_spec()->set_description("a\x1b]0;title\x07\nb\xc2\x9b");
  });
  const std::string table = runner_.Run({"ls"}).out;
  EXPECT_THAT(table, HasSubstr("lunch \\u001b[31mRED\\u000d\\nforged"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2);
  EXPECT_THAT(runner_.Run({"show", "1"}).out,
              HasSubstr("description   a\\u001b]0;title\\u0007\n              b\\u009b\n"));
  const auto json = nlohmann::json::parse(runner_.Run({"show", "1", "-o", "json"}).out);
  EXPECT_EQ(json["queue_reasons"][0], "lunch \x1b[31mRED\r\nforged");
  EXPECT_EQ(json["resolved_spec"]["description"], "a\x1b]0;title\x07\nb\xc2\x9b");
}

TEST_F(Jobs, TheColoursOfTheClientReachTheTerminal) {
  server_.AddJob("first", v1::JOB_STATE_RUNNING);
  runner_.terminal.color = true;
  EXPECT_THAT(runner_.Run({"ls"}).out, HasSubstr("\x1b[32mRUNNING\x1b[0m"));
}

TEST_F(Jobs, WhatIsLeftOutOfAListIsCounted) {
  for (int i = 0; i < 25; ++i) server_.AddJob("a", v1::JOB_STATE_QUEUED);
  EXPECT_THAT(runner_.Run({"ls"}).err, HasSubstr("... and 5 more; `trainyard ls --all` lists all"));
  EXPECT_EQ(runner_.Run({"ls", "-a"}).err, "");
  EXPECT_EQ(runner_.Run({"ls", "-q"}).err, "");
  EXPECT_THAT(runner_.Run({"ls", "--limit", "24", "-o", "name"}).err, HasSubstr("and 1 more"));
}

TEST_F(Jobs, LinesAreCutToTheWidthOfTheTerminal) {
  server_.AddJob("first", v1::JOB_STATE_QUEUED);
  runner_.terminal.out_is_terminal = true;
  runner_.terminal.color = true;
  runner_.terminal.width = 40;
  const std::string table = runner_.Run({"ls"}).out;
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    EXPECT_LE(absl::StripTrailingAsciiWhitespace(line).size(), 40u + 13) << line;  // the colours
  }
  EXPECT_THAT(table, HasSubstr("JOB  NAME   STATE   DEVICES  DONE"));
  EXPECT_THAT(runner_.Run({"ls", "-o", "wide"}).out, HasSubstr("DESCRIPTION"));
}

TEST_F(Jobs, AreFoundByTheirNames) {
  for (const char* name : {"sweep-1", "sweep-2", "other"}) {
    server_.AddJob(name, v1::JOB_STATE_SUCCEEDED);
  }
  EXPECT_EQ(runner_.Run({"ls", "--name", "sweep-*", "-o", "name"}).out, "jobs/2\njobs/1\n");
  EXPECT_THAT(runner_.Run({"ls", "--name", "none"}).err, HasSubstr("no such jobs"));
  EXPECT_THAT(runner_.Run({"show", "other"}).out, HasSubstr("jobs/3  other"));
}

TEST_F(Jobs, ColumnsAndTheirOrderAreChosen) {
  const double rates[] = {0.1, 0.02, 0.5};
  for (int i = 0; i < 3; ++i) {
    const std::string job = server_.AddJob("a", v1::JOB_STATE_SUCCEEDED);
    server_.ChangeJob(job, [&](v1::Job& changed) {
      v1::JobSpec& spec = *changed.mutable_resolved_spec();
      if (i < 2) spec.mutable_optimizer()->mutable_sgd()->set_lr(rates[i]);
      if (i == 2) spec.mutable_optimizer()->mutable_adamw()->set_lr(rates[i]);
      spec.mutable_train()->set_epochs(i + 9);
    });
  }
  EXPECT_EQ(runner_.Run({"ls", "--columns", "job,lr,train.epochs", "--sort", "lr"}).out,
            "JOB    LR  TRAIN.EPOCHS\n"
            "  2  0.02            10\n"
            "  1   0.1             9\n"
            "  3   0.5            11\n");
  EXPECT_EQ(runner_.Run({"ls", "--sort", "epochs", "--reverse", "-o", "name"}).out,
            "jobs/3\njobs/2\njobs/1\n");
  EXPECT_EQ(runner_.Run({"ls", "--sort", "optimizer.adamw.lr", "-o", "name"}).out.substr(0, 7),
            "jobs/3\n");
  const CommandResult unknown = runner_.Run({"ls", "--columns", "accurracy"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("no column 'accurracy'; did you mean 'accuracy'?"));
}

TEST_F(Jobs, TheServerIsAskedForAllTagsThatAreGiven) {
  EXPECT_EQ(runner_.Run({"ls", "--tag", "paper", "--tag", "resnet/ablation"}).exit_code, 0);
  EXPECT_THAT(server_.last_list().tags(), ::testing::ElementsAre("paper", "resnet/ablation"));
}

}  // namespace
}  // namespace trainyard::testing
