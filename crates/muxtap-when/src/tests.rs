use super::*;

fn rule(toml: &str) -> WhenRule {
    toml::from_str(toml).unwrap()
}

/// WN7.
#[test]
fn a_list_shows_no_secret() {
    let given = rule(
        "name='a'\nended=true\nrun=['prog', '--token=s3cret']\ntype='s3cret'\n\
         [post]\nurl='https://hooks.example.org:8443/s3cret?s3cret'\ntemplate={ a = 's3cret' }\n\
         [post.headers]\nX-A='s3cret'\nAuthorization={ env='NAME', prefix='Bearer ' }",
    );
    let other = serde_json::to_string(&shown(&given, false)).unwrap();
    assert!(
        !other.contains("s3cret") && other.contains("https://hooks.example.org:8443/…") && other.contains("NAME"),
        "{other}"
    );
    let user = shown(&given, true);
    assert_eq!(user.run, given.run);
    assert!(!serde_json::to_string(&user.post).unwrap().contains("/s3cret"));
    for (url, shown) in [("http://a?s3cret", "http://a/…"), ("http://a", "http://a/…"), ("s3cret", "s3cret/…")] {
        assert_eq!(origin(url), shown);
    }
}

#[test]
fn a_stored_rule_that_is_left_out_is_kept_until_it_is_removed() {
    let checked = |fields: &str| Arc::new(Rule::of(rule(fields)).unwrap());
    let mut all = All { configured: vec![checked("name='own'\nended=true\nnotify=true")], ..All::default() };
    let stored = [
        "name='good'\nended=true\nnotify=true",
        "name='own'\nquiet='1m'\nnotify=true",
        "name='wrong'\noutput='('\nnotify=true",
        "name='newer'\nnotify=true",
    ];
    all.restore(Ok(stored.map(rule).into()));
    let names = |all: &All| all.to_store().map(|rule| rule.name.clone()).collect::<Vec<_>>();
    assert_eq!(all.added.len(), 1);
    assert_eq!(all.problems().len(), 3, "{:?}", all.problems());
    all.add(checked("name='more'\nended=true\nnotify=true")).unwrap();
    assert_eq!(names(&all), ["good", "more", "own", "wrong", "newer"]);
    // A rule that replaces one that was left out ends its problem.
    all.add(checked("name='wrong'\noutput='x'\nnotify=true")).unwrap();
    assert_eq!((all.problems().len(), all.added.len()), (2, 3));
    // `remove` reaches them, also below a rule of the configuration.
    all.remove("newer").unwrap();
    all.remove("own").unwrap();
    assert_eq!((names(&all), all.problems()), (vec!["good".into(), "more".into(), "wrong".into()], Vec::new()));
    assert_eq!(all.remove("own").unwrap_err().code, ErrorCode::Conflict);
    assert_eq!(all.remove("newer").unwrap_err().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn an_agent_adds_and_removes_no_rule_and_unread_rules_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let added = dir.path().join("when.json");
    std::fs::write(&added, "[{").unwrap();
    let engine = Engine::new(muxtap_engine::Options::default());
    let places =
        Places { journal: dir.path().join("when.jsonl"), added: added.clone(), server: dir.path().join("no-server") };
    let when = When::start(&engine, &[], places);
    let user = engine.with_caller(muxtap_engine::Caller {
        face: "test",
        who: String::new(),
        principal: muxtap_engine::Principal::User(0),
    });
    let given = || rule("name='a'\nended=true\nnotify=true");
    for refused in [when.add(&user, given(), true).await.map(drop), when.remove(&user, "a", true).await] {
        let error = refused.unwrap_err();
        assert_eq!(error.code, ErrorCode::Unauthorized);
        assert!(error.message.contains("an agent of this muxtap started"), "{error}");
    }
    let refused = when.add(&user, given(), false).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    // Mended meanwhile: its rules are not known to this daemon.
    std::fs::write(&added, "[]").unwrap();
    assert!(when.add(&user, given(), false).await.unwrap_err().message.contains("restart the daemon"));
    assert_eq!(std::fs::read_to_string(&added).unwrap(), "[]");
    when.stop().await;
}
