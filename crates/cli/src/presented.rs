//! How a job presents itself to people who look at a line.

/// Says on a recipe of any type with a line who it is that stands there.
macro_rules! presented {
    ($recipe:expr, $client:expr, $args:expr) => {{
        let recipe = $recipe.owner($crate::workplace::owner($client));
        $crate::presented::described!(recipe, $args)
    }};
}

/// Says what it runs, and what its user says of it.
macro_rules! described {
    ($recipe:expr, $args:expr) => {{
        let mut recipe = $recipe;
        // Its arguments may be nobody else's business.
        if let Some(program) = $args.command.first() {
            recipe = recipe.command(program.to_string_lossy());
        }
        match &$args.job.message {
            Some(message) => recipe.message(message),
            None => recipe,
        }
    }};
}

pub(crate) use {described, presented};
