//! `bellwether tx`: two-phase commit among sites.

use bellwether::two_phase::{Decision, Form, Status, Transaction, Vote};
use bellwether::{Client, Error, ErrorKind, TwoPhase};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::args::{
    TransactionArgs, TxArgs, TxBeginArgs, TxCommand, TxDecideArgs, TxForgetArgs, TxLsArgs,
    TxSiteArgs, TxVoteArgs, TxWaitArgs, VoteName,
};
use crate::connect::patience::Patience;
use crate::connect::session::{in_session, in_session_within};
use crate::exit::Exit;
use crate::hold::waiting;
use crate::output::people::{ms, plain, who_json};
use crate::output::refusal::Refusal;
use crate::output::rendering::{data_json, data_text};
use crate::output::transaction_text;
use crate::output::{self, Output};

pub(crate) fn run(args: TxArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        TxCommand::Begin(args) => begin(&args, output),
        TxCommand::Join(args) => join(&args, output),
        TxCommand::Vote(args) => vote(&args, output),
        TxCommand::Decide(args) => decide(&args, output),
        TxCommand::Ls(args) => ls(&args, output),
        TxCommand::Forget(args) => forget(&args, output),
        TxCommand::Wait(args) => wait(&args, output),
        TxCommand::Applied(args) => applied(&args, output),
    }
}

fn transaction(client: &Client, args: &TransactionArgs) -> Transaction {
    TwoPhase::new(client, &args.path).transaction(&args.id)
}

/// An error of a command that asks for the decision: a missing transaction is not one that was aborted.
fn undecided(error: Error) -> anyhow::Error {
    match error.kind {
        ErrorKind::NotFound => Refusal::missing(error.to_string())
            .hint("a transaction is forgotten when every site has applied the decision")
            .into(),
        _ => error.into(),
    }
}

fn begin(args: &TxBeginArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.tree.connect, output, async |client| {
        let form = match args.every_site {
            true => Form::EverySite,
            false => Form::Coordinator,
        };
        let all = TwoPhase::new(client, &args.path);
        let all = all.form(form).deadline(args.deadline);
        let (sites, data) = (args.sites.clone(), &*args.data);
        let begun = match &args.id {
            Some(id) => all.begin_as(id, sites, data).await,
            None => all.begin(sites, data).await,
        };
        let id = begun?.id().to_owned();
        Ok(match args.tree.json {
            true => output::answer_line(json!({"path": args.path, "id": id}))?,
            false => output::answer_line(id)?,
        })
    })
}

fn join(args: &TxSiteArgs, output: Output) -> anyhow::Result<Exit> {
    let at = &args.transaction;
    in_session(&at.tree.connect, output, async |client| {
        let joined = transaction(client, at).join(&args.site).await;
        let mut participation = joined.map_err(undecided)?;
        let payload = participation.proposal().payload();
        match at.tree.json {
            true => output::answer_line(json!({
                "path": at.path,
                "id": at.id,
                "site": args.site,
                "voted": participation.has_voted(),
                "data": data_json(Some(payload)),
            }))?,
            false => output::answer_line(data_text(Some(payload)))?,
        };
        print(participation.decision().await.map_err(undecided)?, at)
    })
}

/// Prints a decision. The exit code of an abort is 1.
fn print(decision: Decision, at: &TransactionArgs) -> anyhow::Result<Exit> {
    match at.tree.json {
        true => {
            let decision = decision.to_string();
            output::answer_line(json!({"path": at.path, "id": at.id, "decision": decision}))?
        }
        false => output::answer_line(decision)?,
    };
    Ok(match decision {
        Decision::Commit => Exit::Done,
        Decision::Abort => Exit::No,
    })
}

fn vote(args: &TxVoteArgs, output: Output) -> anyhow::Result<Exit> {
    let at = &args.transaction;
    in_session(&at.tree.connect, output, async |client| {
        let vote = match args.vote {
            VoteName::Commit => Vote::Commit,
            VoteName::Abort => Vote::Abort(args.reason.clone()),
        };
        let cast = transaction(client, at).vote(&args.site, vote.clone()).await;
        let ballot = cast?;
        let stands = matches!(
            (&ballot.vote, &vote),
            (Vote::Commit, Vote::Commit) | (Vote::Abort(_), Vote::Abort(_))
        );
        if at.tree.json {
            output::answer_line(json!({
                "path": at.path,
                "id": at.id,
                "site": args.site,
                "vote": transaction_text::vote_word(&ballot.vote),
                "reason": transaction_text::vote_reason(&ballot.vote),
            }))?;
        }
        if !stands {
            let (site, said) = (&args.site, transaction_text::vote(&ballot.vote));
            return Err(Refusal::no(format!("the vote of {site} stands: {said}")).into());
        }
        Ok(Exit::Done)
    })
}

fn decide(args: &TxDecideArgs, output: Output) -> anyhow::Result<Exit> {
    let at = &args.transaction;
    in_session(&at.tree.connect, output, async |client| {
        let coordinator = transaction(client, at).coordinate().await;
        let mut coordinator = coordinator.map_err(undecided)?;
        let decided = match &args.abort {
            Some(reason) => coordinator.abort(reason).await,
            None => coordinator.decide().await,
        };
        print(decided.map_err(undecided)?, at)
    })
}

fn wait(args: &TxWaitArgs, output: Output) -> anyhow::Result<Exit> {
    let (at, patience) = (&args.transaction, Patience::new(&args.wait));
    in_session_within(patience, &at.tree.connect, output, async |client| {
        let transaction = transaction(client, at);
        if patience.is_at_once() {
            let status = transaction.status().await.map_err(undecided)?;
            if let Some(decision) = status.decision {
                return print(decision, at);
            }
            let why = missing(&status);
            output.notice(format_args!("{} is not decided yet{why}", at.id));
            return patience.exit(client).await;
        }
        let decided = match patience.left() {
            Some(left) => transaction.decision_timeout(left).await,
            None => transaction.decision().await,
        };
        match decided {
            Err(Error {
                kind: ErrorKind::TimedOut { .. },
                ..
            }) => {
                let status = timeout(waiting::WHO_LIMIT, transaction.status()).await;
                let status = status.ok().and_then(Result::ok);
                let why = status.as_ref().map(missing).unwrap_or_default();
                let limit = patience.limit().unwrap_or_default();
                output.notice(format_args!(
                    "timed out after {limit:?} waiting for the decision of {}{why}",
                    at.id
                ));
                patience.exit(client).await
            }
            decided => print(decided.map_err(undecided)?, at),
        }
    })
}

/// Which sites keep a transaction from its decision, for a notice.
fn missing(status: &Status) -> String {
    let names: Vec<_> = status.missing().map(plain).collect();
    match names.is_empty() {
        true => ": all sites have voted; `tx decide` counts the votes".to_owned(),
        false => format!(": no vote of {}", names.join(", ")),
    }
}

fn applied(args: &TxSiteArgs, output: Output) -> anyhow::Result<Exit> {
    let at = &args.transaction;
    in_session(&at.tree.connect, output, async |client| {
        let transaction = transaction(client, at);
        transaction.applied(&args.site).await?;
        let forgotten = match transaction.forget().await {
            // Another site may have forgotten it at the same time.
            Ok(())
            | Err(Error {
                kind: ErrorKind::NotFound,
                ..
            }) => true,
            // Other sites have not applied the decision yet; the last of them forgets it.
            Err(Error {
                kind: ErrorKind::NotDone { .. },
                ..
            }) => false,
            Err(error) => return Err(error.into()),
        };
        if at.tree.json {
            let object = json!({"path": at.path, "id": at.id, "forgotten": forgotten});
            return Ok(output::answer_line(object)?);
        }
        Ok(Exit::Done)
    })
}

fn forget(args: &TxForgetArgs, output: Output) -> anyhow::Result<Exit> {
    let at = &args.transaction;
    in_session(&at.tree.connect, output, async |client| {
        let transaction = transaction(client, at);
        if args.force {
            print(transaction.forget_by_force().await?, at)?;
            return Ok(Exit::Done);
        }
        match transaction.forget().await {
            Err(
                error @ Error {
                    kind: ErrorKind::NotDone { .. },
                    ..
                },
            ) => {
                return Err(Refusal::no(error.to_string())
                    .hint("--force gives up on these sites")
                    .into());
            }
            forgotten => forgotten?,
        }
        match at.tree.json {
            true => {
                let object = json!({"path": at.path, "id": at.id, "forgotten": true});
                Ok(output::answer_line(object)?)
            }
            false => Ok(Exit::Done),
        }
    })
}

fn ls(args: &TxLsArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.tree.connect, output, async |client| {
        let all = TwoPhase::new(client, &args.path);
        let found = match (&args.id, args.in_doubt) {
            (Some(id), _) => vec![all.transaction(id).status().await?],
            (None, true) => all.in_doubt().await?,
            (None, false) => all.list().await?,
        };
        Ok(output::answer(|out| {
            if args.tree.json {
                let found: Value = found.iter().map(object).collect();
                writeln!(out, "{}", json!({"path": args.path, "transactions": found}))?;
                return Ok(Exit::Done);
            }
            for status in &found {
                writeln!(out, "{}  {}", status.id, transaction_text::title(status))?;
                for line in transaction_text::sites(status) {
                    writeln!(out, "  {line}")?;
                }
            }
            Ok(Exit::Done)
        })?)
    })
}

fn object(status: &Status) -> Value {
    let mut object = transaction_text::fields(status);
    object["id"] = json!(status.id);
    object["begun_ms"] = json!(ms(status.begun));
    object["begun_by"] = who_json(&status.begun_by);
    object["data"] = data_json(Some(&status.payload));
    object
}
