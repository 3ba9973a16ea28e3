//! What the list takes of single items of the sources: names, visibility, attributes, and their text without what users do
//! not see.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, Block, Expr, Fields, ImplItemConst, Item, ItemConst, ItemStatic, TraitItemConst, UseTree, Visibility,
    parse_quote,
};

pub(super) fn names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

pub(super) fn quote_name(name: &str) -> syn::Ident {
    syn::parse_str(name).expect("a name")
}

pub(super) fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The names that a `use` brings, each with its path; `*` for all of a module.
pub(super) fn leaves(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    match tree {
        UseTree::Path(path) => {
            let below = leaves(&path.tree).into_iter();
            below
                .map(|(name, rest)| match &rest[..] {
                    [only] if only == "self" => (path.ident.to_string(), vec![path.ident.to_string()]),
                    _ => (name, [path.ident.to_string()].into_iter().chain(rest).collect()),
                })
                .collect()
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), vec![name.ident.to_string()])],
        UseTree::Rename(renamed) => vec![(renamed.rename.to_string(), vec![renamed.ident.to_string()])],
        UseTree::Glob(_) => vec![("*".to_owned(), vec!["*".to_owned()])],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

/// What an item is called, and who sees it.
pub(super) fn named(item: &Item) -> Option<(&syn::Ident, &Visibility)> {
    Some(match item {
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Mod(item) => (&item.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        _ => return None,
    })
}

pub(super) fn item_name(item: &Item) -> Option<String> {
    named(item).map(|(name, _)| name.to_string())
}

pub(super) fn public_name(item: &Item) -> Option<String> {
    if let Item::Macro(made) = item
        && made.attrs.iter().any(|of| of.path().is_ident("macro_export"))
    {
        return made.ident.as_ref().map(ToString::to_string);
    }
    named(item).filter(|(_, visibility)| is_public(visibility)).map(|(name, _)| name.to_string())
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        _ => &[],
    }
}

pub(super) fn says_pub(tokens: &TokenStream) -> bool {
    let mut tokens = tokens.clone().into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) if says_pub(&group.stream()) => return true,
            // Not `pub(crate)`.
            TokenTree::Ident(word) if word == "pub" && !matches!(tokens.peek(), Some(TokenTree::Group(_))) => {
                return true;
            }
            _ => {}
        }
    }
    false
}

pub(super) fn without_docs(tokens: TokenStream) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let is_attribute = matches!(kept.last(), Some(TokenTree::Punct(mark)) if mark.as_char() == '#');
                if is_attribute && group.stream().to_string().starts_with("doc") {
                    kept.pop();
                    continue;
                }
                let inner = proc_macro2::Group::new(group.delimiter(), without_docs(group.stream()));
                kept.push(TokenTree::Group(inner));
            }
            token => kept.push(token),
        }
    }
    kept.into_iter().collect()
}

pub(super) fn rendered(items: &[Item]) -> String {
    let mut file: syn::File = parse_quote!();
    file.items = items.to_vec();
    prettyplease::unparse(&file)
}

/// Whether an attribute is `#[name(argument)]`.
pub(super) fn is(attribute: &Attribute, name: &str, argument: &str) -> bool {
    attribute.path().is_ident(name)
        && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == argument)
}

/// Without what users do not see: documentation, private fields, bodies, values.
pub(super) fn bare(mut item: Item) -> Item {
    if let Item::Macro(made) = &mut item
        && made.ident.is_some()
    {
        made.mac.tokens = TokenStream::new();
    }
    Bare.visit_item_mut(&mut item);
    item
}

struct Bare;

impl VisitMut for Bare {
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        let kept = ["cfg", "derive", "must_use", "non_exhaustive", "deprecated", "repr", "macro_export"];
        attributes.retain(|of| kept.iter().any(|name| of.path().is_ident(name)) || is(of, "doc", "hidden"));
    }

    fn visit_block_mut(&mut self, block: &mut Block) {
        block.stmts.clear();
    }

    fn visit_item_struct_mut(&mut self, item: &mut syn::ItemStruct) {
        visit_mut::visit_item_struct_mut(self, item);
        match &mut item.fields {
            Fields::Named(fields) => {
                let all = fields.named.len();
                fields.named = fields.named.iter().filter(|field| is_public(&field.vis)).cloned().collect();
                if fields.named.len() < all {
                    fields.named.push(
                        syn::parse::Parser::parse2(syn::Field::parse_named, parse_quote!(_private: _))
                            .expect("a field"),
                    );
                }
            }
            Fields::Unnamed(fields) => {
                let private = fields.unnamed.iter_mut().filter(|field| !is_public(&field.vis));
                private.for_each(|field| (field.vis, field.ty) = (Visibility::Inherited, parse_quote!(_)));
            }
            Fields::Unit => {}
        }
    }

    fn visit_item_const_mut(&mut self, item: &mut ItemConst) {
        visit_mut::visit_item_const_mut(self, item);
        *item.expr = hidden();
    }

    fn visit_item_static_mut(&mut self, item: &mut ItemStatic) {
        visit_mut::visit_item_static_mut(self, item);
        *item.expr = hidden();
    }

    fn visit_impl_item_const_mut(&mut self, item: &mut ImplItemConst) {
        visit_mut::visit_impl_item_const_mut(self, item);
        item.expr = hidden();
    }

    fn visit_trait_item_const_mut(&mut self, item: &mut TraitItemConst) {
        visit_mut::visit_trait_item_const_mut(self, item);
        item.default.iter_mut().for_each(|(_, value)| *value = hidden());
    }
}

pub(super) fn hidden() -> Expr {
    parse_quote!(_)
}
