//! Generates two tests from one function.

/// Generates two tests from each function: on the embedded server, and on Apache's. The function gets a place, whose type creates it by
/// `embedded().await` and `apache().await`.
///
/// ```
/// # mod tests {
/// use bellwether_testkit::{Engine, on_both_engines};
///
/// struct Place(Engine);
///
/// impl Place {
///     async fn embedded() -> Self {
///         Self(Engine::embedded().await.unwrap())
///     }
///
///     async fn apache() -> Self {
///         Self(Engine::apache().await.unwrap())
///     }
/// }
///
/// on_both_engines! {
///     super::Place:
///     server_listens,
/// }
///
/// async fn server_listens(place: Place) {
///     assert!(!place.0.addresses().is_empty());
/// }
/// # }
/// ```
#[macro_export]
macro_rules! on_both_engines {
    ($place:path: $($name:ident,)*) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(<$place>::embedded().await).await;
            })*
        }

        mod apache {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(<$place>::apache().await).await;
            })*
        }
    };
}
