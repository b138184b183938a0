// Tests the commands that follow one job or several, against the fake server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "client/commands/follow.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Follow : public ::testing::Test {
 protected:
  // Runs the command in a thread, and `script` beside it once the job is being watched.
  CommandResult Run(const std::vector<std::string>& args, const std::function<void()>& script) {
    CommandResult result;
    std::thread command([&] { result = runner_.Run(args); });
    server_.WaitForWatches(1);
    script();
    command.join();
    return result;
  }

  void RunJob(int64_t step) {
    server_.ChangeJob("jobs/1", [step](v1::Job& job) {
      job.set_state(v1::JOB_STATE_RUNNING);
      job.set_attempt(1);
      job.mutable_progress()->set_step(step);
      job.mutable_progress()->set_total_steps(20);
      job.mutable_progress()->set_epochs(2);
      job.mutable_progress()->set_epoch(step / 11);
      job.mutable_progress()->set_samples_per_s(640);
    });
    for (int64_t i = 1; i <= step; ++i) {
      server_.AddPoint("jobs/1", i, "train.loss", 2.0 / static_cast<double>(i));
    }
  }
  void EndJob(v1::JobState state) {
    server_.ChangeJob("jobs/1", [state](v1::Job& job) {
      job.set_state(state);
      job.set_attempt(1);
      job.mutable_start_time()->set_seconds(1000);
      job.mutable_end_time()->set_seconds(1092);
      if (state == v1::JOB_STATE_FAILED) {
        job.mutable_failure()->set_failure_class(v1::FAILURE_CLASS_USER_ERROR);
        job.mutable_failure()->set_reason("DATASET_NOT_FOUND");
        job.mutable_failure()->set_message("dataset 'mnist' was not found");
      } else {
        (*job.mutable_final_metrics())["test.accuracy"] = 0.913;
      }
    });
  }

  FakeServer server_;
  CommandRunner runner_{server_.address()};
};

TEST_F(Follow, TellsAnEvaluationWithItsOwnNumbersInWhateverOrderTheyCome) {
  server_.AddJob("small", v1::JOB_STATE_RUNNING);
  const CommandResult result = Run({"watch", "last"}, [&] {
    RunJob(30);
    server_.AddPoint("jobs/1", 10, "test.accuracy", 0.5);
    server_.AddPoint("jobs/1", 10, "test.loss", 1.25);
    server_.AddPoint("jobs/1", 10, "test.top5", 0.9);
    server_.AddPoint("jobs/1", 20, "test.accuracy", 0.75);
    server_.AddPoint("jobs/1", 20, "test.loss", 0.625);
    server_.AddPoint("jobs/1", 30, "test.loss", 0.5);
    server_.AddPoint("jobs/1", 30, "test.accuracy", 0.875);
    EndJob(v1::JOB_STATE_SUCCEEDED);
  });
  EXPECT_THAT(result.err, HasSubstr("step 10: test accuracy 50.0%, test loss 1.25\n"));
  EXPECT_THAT(result.err, HasSubstr("step 20: test accuracy 75.0%, test loss 0.625\n"));
  EXPECT_THAT(result.err, HasSubstr("step 30: test accuracy 87.5%, test loss 0.5\n"));
}

TEST_F(Follow, TellsStatesProgressAndTheEndWithItsCurve) {
  server_.AddJob("small", v1::JOB_STATE_QUEUED);
  server_.ChangeJob("jobs/1", [](v1::Job& job) { job.add_queue_reasons("no device is free"); });
  server_.AddCheckpoint("jobs/1", 20, {{"state.json", "{}"}});
  const CommandResult result = Run({"watch", "last"}, [&] {
    server_.ChangeJob("jobs/1", [](v1::Job& job) {
      job.set_state(v1::JOB_STATE_STARTING);
      job.set_attempt(1);
      v1::RankPlacement* rank = job.add_placement();
      rank->set_worker("workers/lab-1");
      rank->set_device("cpu-0");
    });
    RunJob(20);
    server_.AddPoint("jobs/1", 20, "test.loss", 0.25);
    server_.AddPoint("jobs/1", 20, "test.accuracy", 0.913);
    EndJob(v1::JOB_STATE_SUCCEEDED);
  });
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("jobs/1 is QUEUED\n  waits: no device is free\n"),
                                HasSubstr("step 20: test accuracy 91.3%, test loss 0.25\n"),
                                HasSubstr("\ntrain.loss\n"),
                                HasSubstr("jobs/1 succeeded after 1m 32s: test accuracy 91.3%\n"),
                                HasSubstr("checkpoints at steps 20\n"),
                                HasSubstr("trainyard checkpoints get 1")));
  EXPECT_EQ(result.out, "");
}

TEST_F(Follow, TheEndTellsThePerplexityOfALanguageModel) {
  server_.AddJob("text", v1::JOB_STATE_QUEUED);
  const CommandResult result = Run({"watch", "1"}, [&] {
    server_.ChangeJob("jobs/1", [](v1::Job& job) {
      (*job.mutable_final_metrics())["test.loss"] = 1.5;
      (*job.mutable_final_metrics())["test.perplexity"] = 4.4817;
    });
    EndJob(v1::JOB_STATE_SUCCEEDED);
  });
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("test accuracy 91.3%, test loss 1.5, test perplexity 4.482\n"));
}

TEST_F(Follow, AJobThatFailsEndsWithEightAndItsFirstError) {
  server_.AddJob("small", v1::JOB_STATE_QUEUED);
  const CommandResult result = Run({"watch", "1"}, [&] { EndJob(v1::JOB_STATE_FAILED); });
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("jobs/1 failed"),
                    HasSubstr("(user_error, DATASET_NOT_FOUND): dataset 'mnist' was not found"),
                    HasSubstr("trainyard logs 1")));
}

TEST_F(Follow, ALaterAttemptSaysWhereItBegins) {
  std::ostringstream out;
  std::ostringstream err;
  std::istringstream in;
  const commands::GlobalOptions options;
  const commands::Context context = {
      options,        runner_.surroundings, runner_.terminal,  out, err, in, false,
      *Clock::Real(), *Rng::Real(),         runner_.interrupt, out};
  commands::JobReporter reporter(context);
  v1::Job job;
  job.set_name("jobs/1");
  job.set_state(v1::JOB_STATE_STARTING);
  job.set_attempt(2);
  reporter.OnJob(job);
  EXPECT_THAT(err.str(), HasSubstr(", from the beginning, since there is no checkpoint\n"));
  job.set_state(v1::JOB_STATE_RUNNING);
  reporter.OnJob(job);
  job.set_state(v1::JOB_STATE_STARTING);
  job.set_attempt(3);
  job.mutable_progress()->set_checkpoint_step(600);
  reporter.OnJob(job);
  EXPECT_THAT(err.str(), HasSubstr("attempt 3 on , from the checkpoint of step 600\n"));
}

TEST_F(Follow, EveryChangeOfStateIsToldWithItsReason) {
  std::ostringstream out;
  std::ostringstream err;
  std::istringstream in;
  const commands::GlobalOptions options;
  const commands::Context context = {
      options,        runner_.surroundings, runner_.terminal,  out, err, in, false,
      *Clock::Real(), *Rng::Real(),         runner_.interrupt, out};
  commands::JobReporter reporter(context);
  v1::Job job;
  job.set_name("jobs/1");
  job.set_state(v1::JOB_STATE_STARTING);
  job.set_attempt(1);
  for (const char* device : {"cpu-0", "cpu-1"}) {
    v1::RankPlacement* rank = job.add_placement();
    rank->set_worker("workers/lab-1");
    rank->set_device(device);
  }
  reporter.OnJob(job);
  job.add_queue_reasons("worker lab-1 is out of contact");
  reporter.OnJob(job);
  reporter.OnJob(job);  // nothing new
  job.clear_queue_reasons();
  reporter.OnJob(job);
  job.set_state(v1::JOB_STATE_QUEUED);
  job.mutable_failure()->set_failure_class(v1::FAILURE_CLASS_TRANSIENT);
  job.mutable_failure()->set_message("peer lost");
  job.add_queue_reasons("tried again in 2 s");
  reporter.OnJob(job);
  reporter.OnJob(job);  // nothing new
  job.set_state(v1::JOB_STATE_STOPPING);
  job.set_stop_reason(v1::STOP_REASON_SUSPEND);
  job.clear_queue_reasons();
  reporter.OnJob(job);
  job.set_state(v1::JOB_STATE_SUSPENDED);
  job.clear_failure();  // with one, it would be held
  reporter.OnJob(job);
  EXPECT_EQ(err.str(),
            "jobs/1 is STARTING: attempt 1 on lab-1: cpu-0, cpu-1\n"
            "  worker lab-1 is out of contact\n"
            "jobs/1 is QUEUED again: attempt 1 failed (transient): peer lost\n"
            "  waits: tried again in 2 s\n"
            "jobs/1 is STOPPING (suspend)\n"
            "jobs/1 is SUSPENDED; `trainyard resume 1` queues it again\n");
}

TEST_F(Follow, ALostServerIsToldOnceAndIsBackBeforeAnythingNew) {
  server_.AddJob("small", v1::JOB_STATE_QUEUED);
  RunJob(5);
  const CommandResult result = Run({"watch", "1"}, [&] {
    server_.Stop();
    for (int64_t step = 6; step <= 9; ++step) server_.AddPoint("jobs/1", step, "train.loss", 0.5);
    for (const char* metric : {"test.accuracy", "test.loss"}) {
      server_.AddPoint("jobs/1", 9, metric, 0.75);
    }
    server_.Start();
    server_.WaitForWatches(2);
    EndJob(v1::JOB_STATE_SUCCEEDED);
  });
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const size_t lost = result.err.find("the connection to the server is lost");
  const size_t back = result.err.find("the server is back; following continues");
  const size_t evaluation = result.err.find("step 9: test accuracy 75");
  ASSERT_NE(evaluation, std::string::npos) << result.err;
  EXPECT_LT(lost, back) << result.err;
  EXPECT_LT(back, evaluation) << result.err;
  EXPECT_EQ(result.err.find("the connection to the server is lost", lost + 1), std::string::npos)
      << result.err;
}

TEST_F(Follow, GoesOnOverARestartOfTheServer) {
  server_.AddJob("small", v1::JOB_STATE_QUEUED);
  const CommandResult result = Run({"watch", "1"}, [&] {
    server_.Stop();
    server_.Start();
    server_.WaitForWatches(2);
    RunJob(20);
    EndJob(v1::JOB_STATE_SUCCEEDED);
  });
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("the connection to the server is lost"),
                                HasSubstr("the server is back"), HasSubstr("jobs/1 succeeded")));
}

TEST_F(Follow, AnInterruptEndsTheFollowingAndNotTheJob) {
  server_.AddJob("small", v1::JOB_STATE_RUNNING);
  const CommandResult result = Run({"watch", "1"}, [&] { runner_.interrupt.Trigger(); });
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, AllOf(HasSubstr("stopped following; jobs/1 continues"),
                                HasSubstr("trainyard cancel 1"), Not(HasSubstr("error"))));
}

TEST_F(Follow, OnATerminalTheBarIsRedrawnAndTakenAway) {
  runner_.terminal.err_is_terminal = true;
  runner_.terminal.unicode = true;
  server_.AddJob("small", v1::JOB_STATE_QUEUED);
  RunJob(10);
  const CommandResult result = Run({"watch", "1"}, [&] {
    // A change of state is printed on a line of its own, and the progress bar makes room for it.
    server_.ChangeJob("jobs/1", [](v1::Job& job) { job.set_state(v1::JOB_STATE_STOPPING); });
    EndJob(v1::JOB_STATE_CANCELLED);
  });
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_THAT(result.err, HasSubstr("\x1b[Gepoch"));
  const size_t end = result.err.find("jobs/1 is CANCELLED");
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(result.err.find("samples/s", end), std::string::npos);
}

TEST_F(Follow, SeveralJobsAreWaitedForTogether) {
  server_.AddJob("small", v1::JOB_STATE_QUEUED);
  server_.AddJob("other", v1::JOB_STATE_SUCCEEDED);
  const CommandResult result =
      Run({"wait", "1-2", "-o", "name"}, [&] { EndJob(v1::JOB_STATE_FAILED); });
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_EQ(result.out, "jobs/1\njobs/2\n");
  EXPECT_THAT(result.err, HasSubstr("jobs/1 is FAILED"));
}

TEST_F(Follow, WaitingMayTimeOut) {
  server_.AddJob("small", v1::JOB_STATE_QUEUED);
  const CommandResult result = runner_.Run({"wait", "1", "--timeout", "10ms"});
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(result.err, HasSubstr("after 10ms, 1 job had not ended"));
  EXPECT_EQ(runner_.Run({"wait", "1", "--timeout", "10"}).exit_code, 2);
}

TEST_F(Follow, SubmittingAndFollowingIsOneCommand) {
  const std::string spec = runner_.home.Write(
      "job.yaml",
      "name: small\nmodel: {mlp: {}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n"
      "optimizer: {sgd: {lr: 0.1}}\n");
  const CommandResult result = Run({"run", spec}, [&] { EndJob(v1::JOB_STATE_SUCCEEDED); });
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "jobs/1\n");
}

TEST_F(Follow, AJobThatIsNotThereIsNotFollowed) {
  EXPECT_EQ(runner_.Run({"logs", "7"}).exit_code, 3);
}

// A job that runs a program of the user's own.
class FollowProgram : public Follow {
 protected:
  // Runs the command with `input` on a terminal, and `script` beside it.
  CommandResult RunCommand(const std::string& input, const std::function<void()>& script) {
    CommandResult result;
    std::thread command([&] { result = runner_.Run({"run", "--", "sh", "-c", "echo"}, input); });
    server_.WaitForWatches(1);
    script();
    command.join();
    return result;
  }

  void Fail(int exit_code, const std::string& reason = "PROGRAM_FAILED",
            const std::string& message = "the program exited with code 7") {
    server_.ChangeJob("jobs/1", [&](v1::Job& job) {
      job.set_state(v1::JOB_STATE_FAILED);
      job.mutable_failure()->set_failure_class(v1::FAILURE_CLASS_USER_ERROR);
      job.mutable_failure()->set_reason(reason);
      job.mutable_failure()->set_message(message);
      job.mutable_failure()->set_exit_code(exit_code);
    });
  }
};

TEST_F(FollowProgram, PrintsWhatTheProgramPrintsAndPassesItsExitCodeOn) {
  const CommandResult result = RunCommand("", [&] {
    RunJob(0);
    server_.AddLog("jobs/1", 0, "50%\r100% \x1b[32mdone\x1b[0m");
    Fail(7);
  });
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "50%\r100% \x1b[32mdone\x1b[0m") << "one's own program may draw";
  EXPECT_THAT(result.err, AllOf(HasSubstr("jobs/1 failed (user_error, PROGRAM_FAILED)"),
                                HasSubstr("  trainyard logs 1            what it printed\n"
                                          "  trainyard show 1 --events   its history\n")));
}

TEST_F(FollowProgram, AnEndWithoutExitCodeIsABadEnd) {
  EXPECT_EQ(RunCommand("", [&] { Fail(0); }).exit_code, 8);
}

// The process that runs the program has a code of its own for each of these ends, which is none of
// the program's.
TEST_F(FollowProgram, AnEndThatIsNotTheProgramsOwnHasNoCodeOfIt) {
  EXPECT_EQ(RunCommand("", [&] { Fail(2, "IDLE_LIMIT", "it was idle for 2s"); }).exit_code, 8);
}

TEST_F(FollowProgram, AProgramThatCannotBeExecutedGivesTheCodeOfShells) {
  EXPECT_EQ(
      RunCommand(
          "", [&] { Fail(2, "PROGRAM_NOT_STARTED", "cannot execute 'nosuchprog': No such file"); })
          .exit_code,
      127);
}

TEST_F(FollowProgram, AProgramThatWasKilledGivesItsSignal) {
  EXPECT_EQ(RunCommand("", [&] { Fail(137, "OUT_OF_MEMORY", "it ran out of memory"); }).exit_code,
            137);
}

TEST_F(FollowProgram, CtrlCAsksAtATerminal) {
  const CommandResult detached = RunCommand("d\n", [&] {
    RunJob(0);
    runner_.interrupt.Trigger();
  });
  EXPECT_EQ(detached.exit_code, 130);
  EXPECT_THAT(detached.err, AllOf(HasSubstr("[c] cancel it"), HasSubstr("jobs/1 continues")));
}

TEST_F(FollowProgram, CtrlCMayCancel) {
  const CommandResult cancelled = RunCommand("c\n", [&] {
    RunJob(0);
    runner_.interrupt.Trigger();
  });
  EXPECT_EQ(cancelled.exit_code, 8);
  EXPECT_THAT(cancelled.err, HasSubstr("jobs/1 is CANCELLED"));
}

TEST_F(FollowProgram, AfterCtrlCTheFollowingMayGoOn) {
  const CommandResult result = RunCommand("\n", [&] {
    RunJob(0);
    server_.AddLog("jobs/1", 0, "before\n");
    runner_.interrupt.Trigger();
    server_.WaitForWatches(2);
    server_.AddLog("jobs/1", 0, "after\n");
    EndJob(v1::JOB_STATE_SUCCEEDED);
  });
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "before\nafter\n") << "nothing is printed twice";
}

}  // namespace
}  // namespace trainyard::testing
