//! The public API, kept in a snapshot so that a change to it shows in review.
//!
//! Read from the sources: each public module with its public items, those that it re-exports from private modules among
//! them. What macros make is shown as their invocation.

mod items;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::{ImplItem, Item, ItemImpl, ItemMacro, ItemMod, ItemUse, Type, parse_quote};

use items::{
    attributes, bare, is, is_public, item_name, leaves, names, public_name, quote_name, rendered, says_pub,
    without_docs,
};

const UPDATE: &str = "The public API has changed. If that is meant, and CHANGELOG.md says it, accept it with \
                      `INSTA_UPDATE=always cargo test --release --test library public_api`";

#[test]
fn public_api_is_the_one_in_the_snapshot() {
    let library = Library::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs"));
    let text = library.text();
    for known in ["pub mod train", "pub struct Trainer", "pub trait Op", "pub fn fit(", "impl Op for MatMul"] {
        assert!(text.contains(known), "the list lacks `{known}`");
    }
    insta::with_settings!({ description => UPDATE, omit_expression => true, snapshot_path => "../snapshots" }, {
        insta::assert_snapshot!("public_api", text);
    });
}

#[test]
fn what_is_public_is_told_from_what_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write("lib.rs", "mod inner; pub mod outer; pub use inner::{Shown as Renamed, made};");
    write(
        "inner.rs",
        "/// Doc. \n #[derive(Debug)] pub struct Shown { pub a: u32, b: u32 } pub struct Hidden; \
         impl Shown { pub fn get(&self) -> u32 { self.b } pub(crate) fn set(&mut self) {} } \
         impl Clone for Shown { fn clone(&self) -> Self { loop {} } } \
         pub(crate) trait Private {} impl Private for Shown {} \
         macro_rules! make { ($name:ident) => { pub fn $name() {} } } make! { made }",
    );
    write(
        "outer.rs",
        "use crate::inner::Shown; impl Shown { pub fn count(&self) -> usize { 1 } } impl From<u32> for Shown { fn from(b: u32) -> Self { loop {} } } \
         pub(crate) fn private() {} #[cfg(test)] pub fn tested() {} #[cfg(feature = \"x\")] pub const N: u32 = 3;",
    );
    let text = Library::load(&folder.path().join("lib.rs")).text();
    insta::assert_snapshot!(text, @r#"
    pub use inner::Shown as Renamed;
    #[derive(Debug)]
    pub struct Shown {
        pub a: u32,
        _private: _,
    }
    impl Clone for Shown {}
    impl From<u32> for Shown {}
    impl Shown {
        pub fn count(&self) -> usize {}
        pub fn get(&self) -> u32 {}
    }
    pub use inner::made;
    make! {
        made
    }
    pub mod outer {
        #[cfg(feature = "x")]
        pub const N: u32 = _;
    }
    "#);
}

/// A module's name, from the root on, which has none.
type Place = Vec<String>;

/// The library's modules with their items.
struct Library {
    modules: BTreeMap<Place, Vec<Item>>,
    /// Each `impl` with the module and the name of its type.
    impls: Vec<((Place, String), ItemImpl)>,
    /// The macros that make something public.
    makers: BTreeSet<String>,
}

impl Library {
    fn load(root: &Path) -> Self {
        let mut modules = BTreeMap::new();
        load(root, Place::new(), &mut modules);
        let mut library = Library { modules, impls: Vec::new(), makers: BTreeSet::new() };
        let all = || library.modules.iter().flat_map(|(place, items)| items.iter().map(move |item| (place, item)));
        let makers = all().filter_map(|(_, item)| match item {
            Item::Macro(made) if says_pub(&made.mac.tokens) => made.ident.as_ref().map(ToString::to_string),
            _ => None,
        });
        let impls = all().filter_map(|(place, item)| match item {
            Item::Impl(item) => match &*item.self_ty {
                Type::Path(of) => Some((library.find(place, &names(&of.path), 0)?, item.clone())),
                _ => None,
            },
            _ => None,
        });
        let (makers, impls) = (makers.collect(), impls.collect());
        library.makers = makers;
        library.impls = impls;
        library
    }

    fn text(&self) -> String {
        let items = self.public_items(&Place::new(), &mut BTreeSet::new());
        rendered(&items)
    }

    /// What a module shows, by name. `seen` are the private modules whose macros were shown.
    fn public_items(&self, place: &Place, seen: &mut BTreeSet<Place>) -> Vec<Item> {
        let mut shown: Vec<(String, Vec<Item>)> = Vec::new();
        for item in &self.modules[place] {
            match item {
                Item::Mod(module) if is_public(&module.vis) => {
                    let inner = self.public_items(&child(place, &module.ident.to_string()), seen);
                    let module = ItemMod { content: Some((Default::default(), inner)), ..module.clone() };
                    shown.push((module.ident.to_string(), vec![bare(Item::Mod(module))]));
                }
                Item::Use(item) if is_public(&item.vis) => {
                    for (name, path) in leaves(&item.tree) {
                        self.re_exported(place, item, &name, &path, &mut shown, seen);
                    }
                }
                item => {
                    let name = public_name(item).filter(|_| !matches!(item, Item::Mod(_) | Item::Use(_)));
                    if let Some(name) = name {
                        shown.push((name.clone(), self.with_impls(place, &name, item)));
                    }
                }
            }
        }
        shown.extend(self.macros(place).map(|(name, item)| (name, vec![item])));
        shown.sort_by_key(|(name, items)| (name.clone(), rendered(items)));
        shown.into_iter().flat_map(|(_, items)| items).collect()
    }

    /// A re-exported item: as it is where its own module is private, else as a `pub use`.
    fn re_exported(
        &self,
        place: &Place,
        item: &ItemUse,
        name: &str,
        path: &[String],
        shown: &mut Vec<(String, Vec<Item>)>,
        seen: &mut BTreeSet<Place>,
    ) {
        let as_it_is = |path: &[String]| {
            let path: syn::Path = syn::parse_str(&path.join("::").replace("::*", "")).expect("a path");
            let end: Option<TokenStream> = match (path.segments.last(), name) {
                (_, "*") => Some(parse_quote!(::*)),
                (Some(last), name) if last.ident != name => {
                    let name = quote_name(name);
                    Some(parse_quote!(as #name))
                }
                _ => None,
            };
            let attrs = &item.attrs;
            bare(parse_quote!(#(#attrs)* pub use #path #end;))
        };
        let home = if name == "*" { self.module(place, &path[..path.len() - 1]) } else { None };
        if let Some(home) = home.filter(|home| !self.is_reachable(home)) {
            let items = self.public_items(&home, seen);
            shown.push((name.to_owned(), items));
            return;
        }
        if let Some(home) = self.module(place, &path[..path.len() - 1]).filter(|home| !self.is_reachable(home))
            && seen.insert(home.clone())
        {
            shown.extend(self.macros(&home).map(|(name, item)| (name, vec![item])));
        }
        match self.find(place, path, 0) {
            Some((home, own)) if !self.is_reachable(&home) => {
                let item = self.modules[&home].iter().find(|item| public_name(item).as_ref() == Some(&own));
                let mut items = item.map_or_else(Vec::new, |item| self.with_impls(&home, &own, item));
                if own != name {
                    items.insert(0, as_it_is(path));
                }
                shown.push((name.to_owned(), items));
            }
            _ => shown.push((name.to_owned(), vec![as_it_is(path)])),
        }
    }

    /// Whether users can name the module.
    fn is_reachable(&self, place: &Place) -> bool {
        (0..place.len()).all(|depth| {
            let declares = |item: &Item| matches!(item, Item::Mod(module) if module.ident == place[depth] && is_public(&module.vis));
            self.modules[&place[..depth]].iter().any(declares)
        })
    }

    /// Invocations that make something public in a module.
    fn macros<'a>(&'a self, place: &Place) -> impl Iterator<Item = (String, Item)> + use<'a> {
        self.modules[place].iter().filter_map(|item| match item {
            Item::Macro(made) if made.ident.is_none() && self.makes(&made.mac) => {
                let mut made = made.clone();
                made.mac.tokens = without_docs(made.mac.tokens);
                Some((format!("{}!", names(&made.mac.path).join("::")), bare(Item::Macro(made))))
            }
            _ => None,
        })
    }

    fn makes(&self, invoked: &syn::Macro) -> bool {
        names(&invoked.path).last().is_some_and(|name| self.makers.contains(name))
    }

    /// An item, and for a type what is implemented for it.
    fn with_impls(&self, place: &Place, name: &str, item: &Item) -> Vec<Item> {
        let of_this = self.impls.iter().filter(|(home, _)| (&home.0, home.1.as_str()) == (place, name));
        // Methods of one type are listed together, whichever file they are in.
        let mut impls = BTreeMap::<String, ItemImpl>::new();
        for (home, item) in of_this {
            let Some(item) = self.shown_impl(&home.0, item) else { continue };
            let header = rendered(&[Item::Impl(ItemImpl { items: Vec::new(), ..item.clone() })]);
            match impls.get_mut(&header) {
                Some(same) => same.items.extend(item.items),
                None => drop(impls.insert(header, item)),
            }
        }
        for item in impls.values_mut() {
            item.items.sort_by_key(|item| match item {
                ImplItem::Fn(item) => item.sig.ident.to_string(),
                ImplItem::Const(item) => item.ident.to_string(),
                _ => String::new(),
            });
        }
        [item.clone()].into_iter().chain(impls.into_values().map(Item::Impl)).map(bare).collect()
    }

    /// The public methods of an inherent `impl`, or the first line of a trait's.
    fn shown_impl(&self, place: &Place, item: &ItemImpl) -> Option<ItemImpl> {
        let mut item = item.clone();
        if let Some((of, _)) = &item.trait_ {
            item.items.clear();
            let own = self.find(place, &names(of), 0);
            let is_private = own.is_some_and(|(home, name)| {
                !self.modules[&home].iter().any(|item| public_name(item).as_ref() == Some(&name))
            });
            return (!is_private).then_some(item);
        }
        item.items.retain(|item| match item {
            ImplItem::Fn(item) => is_public(&item.vis),
            ImplItem::Const(item) => is_public(&item.vis),
            ImplItem::Macro(item) => self.makes(&item.mac),
            _ => false,
        });
        (!item.items.is_empty()).then_some(item)
    }

    /// The module that a path names.
    fn module(&self, from: &Place, path: &[String]) -> Option<Place> {
        let mut place = from.clone();
        for (i, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => place.clear(),
                "self" => {}
                "super" => drop(place.pop()?),
                name => {
                    let next = child(&place, name);
                    if !self.modules.contains_key(&next) {
                        let (home, own) = if i == 0 { self.imported(&place, name, 8)? } else { return None };
                        place = child(&home, &own);
                        self.modules.get(&place)?;
                        continue;
                    }
                    place = next;
                }
            }
        }
        Some(place)
    }

    /// The module that defines what a path names, and its name there.
    fn find(&self, from: &Place, path: &[String], depth: usize) -> Option<(Place, String)> {
        let (name, front) = path.split_last()?;
        let place = self.module(from, front)?;
        // A module may have the name of a function.
        let defines = |item: &Item| !matches!(item, Item::Mod(_)) && item_name(item).as_ref() == Some(name);
        if self.modules[&place].iter().any(defines) {
            return Some((place, name.clone()));
        }
        self.imported(&place, name, depth)
    }

    /// What a `use` in a module calls by a name.
    fn imported(&self, place: &Place, name: &str, depth: usize) -> Option<(Place, String)> {
        if depth > 8 {
            return None;
        }
        let uses = self.modules[place].iter().filter_map(|item| match item {
            Item::Use(item) => Some(leaves(&item.tree)),
            _ => None,
        });
        let (as_named, globs): (Vec<_>, Vec<_>) = uses.flatten().partition(|(named, _)| named != "*");
        let direct = as_named.iter().filter(|(named, path)| named == name && path[..] != [name.to_owned()]);
        let paths = direct.map(|(_, path)| path.clone());
        let globbed = globs
            .iter()
            .map(|(_, path)| path[..path.len() - 1].iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>());
        paths.chain(globbed).find_map(|path| self.find(place, &path, depth + 1))
    }
}

fn load(file: &Path, place: Place, modules: &mut BTreeMap<Place, Vec<Item>>) {
    let text = fs::read_to_string(file).expect("a source");
    let mut items = syn::parse_file(&text).expect("parses").items;
    // Neither tests nor pages of the documentation are there for who calls the library.
    let elsewhere = ["test", "any (doc , doctest)"];
    items.retain(|item| !attributes(item).iter().any(|of| elsewhere.iter().any(|when| is(of, "cfg", when))));
    let stem = file.file_stem().expect("a name");
    let folder = file.parent().expect("a folder");
    let folder = if stem == "mod" || stem == "lib" { folder.to_owned() } else { folder.join(stem) };
    let source = |name: &str| -> Option<PathBuf> {
        let files = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
        files.into_iter().find(|file| file.is_file())
    };
    // Some macros declare public modules, by name.
    let declared: Vec<ItemMod> = items
        .iter()
        .filter_map(|item| match item {
            Item::Macro(ItemMacro { ident: None, mac, .. }) => Some(mac.tokens.clone()),
            _ => None,
        })
        .flatten()
        .filter_map(|token| match token {
            TokenTree::Ident(name) if source(&name.to_string()).is_some() => Some(parse_quote!(pub mod #name;)),
            _ => None,
        })
        .collect();
    items.extend(declared.into_iter().map(Item::Mod));
    for item in &items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        match &module.content {
            Some((_, inner)) => drop(modules.insert(child(&place, &name), inner.clone())),
            None => {
                let source = source(&name).unwrap_or_else(|| panic!("no source of {name}"));
                load(&source, child(&place, &name), modules);
            }
        }
    }
    modules.insert(place, items);
}

fn child(place: &Place, name: &str) -> Place {
    place.iter().cloned().chain([name.to_owned()]).collect()
}
