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
